"""Names, words and numbers that generated tasks are made of.

No word of the lists stands inside another one, so that an answer is never found in a word that is
not the answer. RULER takes some thousands of words from a package; here they are fewer, and pairs
of adjective and noun where they do not suffice.
"""

import uuid

NOUNS = """
acorn admiral airport almond anchor ankle apron armchair artist atlas author avenue bakery
balcony balloon bamboo banjo banner barley barrel basin basket battery beacon bicycle biscuit
blanket blossom bottle boulder bracelet bridge bronze bucket buffalo butter button cabin cactus
camera candle canoe canyon captain caravan carpet carrot castle cathedral cellar ceramic chapel
cherry chimney cinema circus citizen clarinet cliff clover coffee comet compass concert copper
coral cottage cotton cousin cradle crystal curtain cushion daisy dancer desert diamond doctor
dolphin donkey dragon drawer eagle easel elbow elephant emerald engine envelope fabric falcon
farmer feather ferry fiddle finger flute forest fountain fox galaxy garden garlic gazelle
giraffe glacier goblet granite grape guitar hammer harbor harvest hazel helmet hermit hockey
honey horizon hotel hunter iceberg igloo insect island ivory jacket jaguar jasmine jelly jewel
journal judge jungle kangaroo kettle kitchen knight ladder lagoon lantern lawyer lemon leopard
library lizard lobster locket lumber magnet mango maple marble market meadow melody mercury
meteor mirror monkey mosaic mountain museum mushroom napkin needle nephew nickel novel oasis
ocean olive onion orchard organ otter oyster paddle palace panda parcel parrot pasture peacock
peanut pebble pelican pencil penguin pepper perfume pianist picnic pigeon pillow pilot planet
plaza pocket poet pony poplar postcard potato prairie prism pulley pumpkin puppet puzzle quarry
quilt rabbit radish raft railway raven reef reptile ribbon river robot rocket saddle sailor
salmon sandal satchel saucer scarf sculptor shadow shelter shovel sickle silk singer sketch
sleigh spider sponge squirrel stable station statue stove sugar summit surgeon swan tailor
tapestry teacher temple theater thunder ticket tiger timber toaster tobacco tortoise tower
tractor trumpet tulip tunnel turnip turtle umbrella uncle valley vase velvet village violin
visitor volcano wagon waiter wallet walnut walrus weaver whale wheat whistle widow willow window
winter wizard yacht zebra zipper
""".split()

ADJECTIVES = """
ancient anxious arctic awkward bashful bitter blunt bold brave brief bright brisk broad calm
careful cautious cheerful chilly clever clumsy colorful cosy crimson crooked curious damp
dazzling decent deep delicate dizzy dusty eager elegant empty enormous fading faithful famous
fearless feeble fierce flat fluffy foggy fragile frozen gentle gigantic glossy golden graceful
grumpy hasty hollow honest hostile humble hungry idle innocent jolly joyful keen lazy lively
lonely loud loyal lucky mellow mild modest muddy mute narrow nervous nimble noisy obedient odd
orange pale patient peculiar polite proud purple quaint quiet rapid rare reckless remote rigid
robust rough rusty sacred scarlet serious shallow sharp shiny shy silent silver simple sincere
sleepy slender smooth sober solemn sour sparkling splendid steady steep stiff strict stubborn
sturdy sudden sunny superb swift tame tender thirsty tidy tiny tough transparent tropical
unusual upset urgent vacant vague vivid warm weary wicked wild wise witty wooden yellow young
zealous
""".split()

VERBS = """
absorb accept admire advise announce answer apologise appear applaud approve argue arrive
assemble attend avoid bargain behave belong borrow bounce breathe calculate celebrate challenge
change choose climb collect combine compare complain confess confuse consider continue decide
declare decorate deliver deny depend describe deserve destroy develop disagree discover divide
donate dream educate embrace employ enjoy enter escape examine excuse exist expand explain
explore extend finish follow forget forgive gather generate glance grumble guess hesitate hurry
ignore imagine improve include increase inform injure inquire insist inspect invent invite knit
laugh launch learn listen manage measure mention migrate multiply murmur notice obey observe
obtain occupy offer operate perform persuade polish possess postpone practise predict prefer
prepare pretend prevent produce promise pronounce propose protect provide punish pursue realise
receive recognise recover reduce reflect refuse regret rejoice remember remove repair replace
request rescue respect retire return reveal rinse satisfy scatter scratch search select share
shiver shrink solve sneeze stumble suggest supply surround survive suspect swallow tempt
translate travel tremble understand vanish wander welcome whisper wonder worry wrestle yawn
""".split()

WORDS = NOUNS + ADJECTIVES + VERBS

FORENAMES = """Agnes Bernard Clara Desmond Edith Frank Gloria Harold Irene Julian Kathleen Leonard
Martha Norman Olga Patrick Queenie Rupert Sylvia Thomas Ursula Victor Winifred Xavier Yvonne
Zachary""".split()
SURNAMES = """Abernathy Bancroft Caldwell Dunmore Eastwood Fairbanks Galloway Hathaway Ingram
Jennings Kensington Lockhart Merriweather Northcote Ogilvie Pemberton Quimby Rutherford Sedgwick
Thornton Underhill Vandermeer Whitaker Yardley Zimmerman""".split()
TOWN_BEGINS = "Alder Brindle Castle Dun Elm Fern Glen Hart Kings Lark Mill Nether Oak Raven".split()
TOWN_ENDS = "bourne bridge combe field ford haven holme ley moor stead thorpe wick".split()
COMPANY_BEGINS = """Acorn Beacon Cobalt Delta Ember Falcon Granite Harbour Iris Juniper Keystone
Lantern Meridian Nimbus Orchid Pinnacle Quartz Redwood Summit Tempest Vertex Willow""".split()
COMPANY_ENDS = "Press Shipping Glass Motors Textiles Dairies Foundry Optics".split()
RIVERS = """Arun Brathay Calder Derry Ewell Frome Gipping Hodder Irwell Kennet Lowther Medlock
Nidd Otter Perry Rother Severn Tamar Wharfe Yarrow""".split()
COUNTIES = """Ashshire Barrowshire Coldshire Drumshire Eastmark Fairshire Greyshire Highmark
Inglemark Jarrowshire Kelmark Lowshire""".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pairs(begins, ends, joint=""):
    """All words that begin with one of a list and end with one of another."""
    return [begin + joint + end for begin in begins for end in ends]


PAIRS = pairs(ADJECTIVES, NOUNS, "-")
PEOPLE = pairs(FORENAMES, SURNAMES, " ")
TOWNS = pairs(TOWN_BEGINS, TOWN_ENDS)
COMPANIES = pairs(COMPANY_BEGINS, COMPANY_ENDS, " ")


def number(rng, digits=7):
    return str(rng.randrange(10 ** (digits - 1), 10 ** digits))


def letters(rng, count, alphabet=LETTERS):
    return "".join(rng.choice(alphabet) for _ in range(count))


def draw(rng, kind):
    """A value of a kind that RULER has for keys and values: words, numbers, uuids."""
    if kind == "words":
        return rng.choice(PAIRS)
    if kind == "numbers":
        return number(rng)
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def draw_new(rng, kind, used):
    """One that is not in the set `used`, where it is added."""
    while True:
        value = draw(rng, kind)
        if value not in used:
            used.add(value)
            return value


def enumerate_words(words):
    """Words as a list in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
