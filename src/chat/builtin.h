/* builtin.h - the built-in chat templates of --template: TEMPLATE(name, tokens it writes,
 * template)
 *
 * Each does, rewritten, what the family's published template does with messages of the roles
 * system, user and assistant. It writes the family's tokens, whatever the folder calls BOS. */

TEMPLATE("llama3", "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>",
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content|trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")

TEMPLATE("chatml", "<|im_start|> <|im_end|>",
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

TEMPLATE("qwen2.5", "<|im_start|> <|im_end|>",
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

TEMPLATE("smollm", "<|im_start|> <|im_end|>",
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

/* In the first version [INST] is text; in the other two it is a token. */
TEMPLATE("mistral-v1", "<s> </s>",
    "<s>{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('there is no system role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant must take turns, the user first') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}")

#define MISTRAL(inst, assistant) \
    "{% set system = messages[0].content if messages[0].role == 'system' %}" \
    "<s>{% for m in (messages[1:] if messages[0].role == 'system' else messages) %}" \
    "{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}" \
    "{{ raise_exception('user and assistant must take turns, the user first') }}{% endif %}" \
    "{% if m.role == 'user' %}" inst "{% if loop.last and system is string %}" \
    "{{ system }}\n\n{% endif %}{{ m.content }}[/INST]" \
    "{% else %}" assistant "</s>{% endif %}{% endfor %}"

TEMPLATE("mistral", "<s> </s> [INST] [/INST]", MISTRAL("[INST] ", " {{ m.content|trim }}"))
TEMPLATE("mistral-tekken", "<s> </s> [INST] [/INST]", MISTRAL("[INST]", "{{ m.content }}"))
#undef MISTRAL

TEMPLATE("phi3", "<|system|> <|user|> <|assistant|> <|end|> <|endoftext|>",
    "{% for m in messages %}{% if m.role != 'system' or m.content %}<|{{ m.role }}|>\n"
    "{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|endoftext|>{% endif %}")

/* Gemma 3's, which puts the system message before the user's; Gemma 2's refuses one. */
TEMPLATE("gemma", "<bos> <start_of_turn> <end_of_turn>",
    "<bos>{% set system = messages[0].content if messages[0].role == 'system' %}"
    "{% for m in (messages[1:] if messages[0].role == 'system' else messages) %}"
    "{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant must take turns, the user first') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n"
    "{% if loop.first and system is string %}{{ system }}\n\n{% endif %}"
    "{{ m.content|trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")

#define BAR "\xef\xbd\x9c"      /* U+FF5C */
#define LOW "\xe2\x96\x81"      /* U+2581 */
TEMPLATE("deepseek-r1", "<" BAR "begin" LOW "of" LOW "sentence" BAR "> <" BAR "User" BAR "> <" BAR
    "Assistant" BAR "> <" BAR "end" LOW "of" LOW "sentence" BAR ">",
    "<" BAR "begin" LOW "of" LOW "sentence" BAR ">"
    "{{ (messages|selectattr('role', 'eq', 'system')|list|last).content if "
    "messages|selectattr('role', 'eq', 'system')|list }}"
    "{% for m in messages %}{% if m.role == 'user' %}<" BAR "User" BAR ">{{ m.content }}"
    "{% elif m.role == 'assistant' %}<" BAR "Assistant" BAR ">"
    "{{ m.content.split('</think>')|last }}<" BAR "end" LOW "of" LOW "sentence" BAR ">"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "<" BAR "Assistant" BAR "><think>\n{% endif %}")
#undef BAR
#undef LOW

/* Granite 3.3's; its default system message says the date. */
TEMPLATE("granite", "<|start_of_role|> <|end_of_role|> <|end_of_text|>",
    "{% if messages[0].role != 'system' %}<|start_of_role|>system<|end_of_role|>"
    "Knowledge Cutoff Date: April 2024. Today's Date: {{ strftime_now('%B %d, %Y') }}. "
    "You are Granite, developed by IBM. You are a helpful AI assistant.<|end_of_text|>\n{% endif %}"
    "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}"
    "<|end_of_text|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}")
