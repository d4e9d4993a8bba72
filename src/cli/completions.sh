#!/bin/sh
# completions.sh - completions for bash, zsh and fish, from the option tables of the programs
#
# usage: src/cli/completions.sh FOLDER PROGRAM ...
#
# Each program prints its table (--list-options, src/cli/completion.c). FOLDER gets kvpipe.bash, for
# all of them, _kvpipe for zsh, and for fish a file for each program. RUN is what runs a program
# that was made for another machine (qemu-aarch64); where they do not run, _kvpipe is empty, and
# nothing else is made.
set -eu
export LC_ALL=C CDPATH=

folder=$1
shift
mkdir -p "$folder"

# machine FILE: class, byte order and machine of its ELF header; nothing of another file
machine() {
	od -An -v -tx1 -N 20 "$1" | tr -d ' \n' | sed -n 's/^7f454c46\(....\).*\(....\)$/\1\2/p'
}

if [ -z "${RUN:-}" ] && [ "$(machine "$1")" != "$(machine /bin/sh)" ]; then
	echo "No completions for shells: $1 is not for this machine" \
	    "(make RUN= names what runs it)." >&2
	rm -f "$folder"/*
	: >"$folder/_kvpipe"
	exit
fi
for program; do
	# shellcheck disable=SC2086 # words of a command
	${RUN:-} "$program" --list-options
done >"$folder/options"

# names: of all programs
names=$(awk -F '\t' 'NF == 2 { printf "%s%s", sep, $1; sep = " " }' "$folder/options")

# joined: standard input, where a line that ends in \ goes on in the next
joined() {
	sed -e ':a' -e '/\\$/N' -e 's/\\\n//' -e 'ta'
}

# ---- bash: --policy x, --policy=x, -o x, operands; a word of several letters is not taken apart

{
	joined <<-'END'
		# bash completion for kvpipe; made from the programs' option tables
		_kvpipe() {
			local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} \
			options operand values text last file
			if [ "$cur" = = ]; then
				cur=
			elif [ "$before" = = ]; then
				before=${COMP_WORDS[COMP_CWORD-2]}
			fi
			# kvpipe score ... is kv-score ...
			local program=${COMP_WORDS[0]##*/}
			if [ "$program" = kvpipe ] && [ "$COMP_CWORD" -gt 1 ] && \
			[ "${COMP_WORDS[1]}" != help ]; then
				program=kv-${COMP_WORDS[1]#kv-}
			fi
			case $program in
	END
	awk -F '\t' '
		NF == 2 {
			if (n++)
				print options "\047" "\n\t\t;;"
			print "\t" $1 ")\n\t\toperand=\047" $2 "\047"
			options = "\t\toptions=\047"
			next
		}
		{ options = options (options ~ /\047$/ ? "" : " ") "--" $2 }
		END { print options "\047" "\n\t\t;;" }' "$folder/options"
	# shellcheck disable=SC2016 # variables of the completion
	printf '\tesac\n\tvalues=\n\tcase $program:$before in\n'
	awk -F '\t' '
		NF == 2 { program = $1; next }
		$3 != "-" {
			pattern = program ":--" $2 ($1 != "-" ? " | " program ":-" $1 : "")
			print "\t" pattern ") values=\047" ($4 == "-" ? "@none" : $4) "\047 ;;"
		}' "$folder/options"
	joined <<-'END'
			esac
			[ -n "$values" ] || case $cur in
			-*) values=$options ;;
			*) values=$operand ;;
			esac
			COMPREPLY=()
			case $values in
			@none) return ;;
			@dir) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
			@file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
			@snapshot) mapfile -t COMPREPLY < <(compgen -f -X '!*.kv' -- "$cur"; \
				compgen -d -- "$cur") ;;
			*)
				# the last of the words of a text in quotes; behind = it may be \
				a file, which has its own blanks
				text=${cur#[\"\']} last=${text##*[[:blank:]]}
				case $last in
				*=*)
					while IFS= read -r file; do
						COMPREPLY+=("${text%"${last#*=}"}${file// /\\ }")
					done < <(compgen -f -- "${last#*=}")
					;;
				*) mapfile -t COMPREPLY < <(compgen -W "$values" \
					-P "${text%"$last"}" -- "$last") ;;
				esac
				return
				;;
			esac
			compopt -o filenames 2>/dev/null
		}
	END
	echo "complete -F _kvpipe $names"
} >"$folder/kvpipe.bash"

# ---- zsh ----

{
	# shellcheck disable=SC2016 # a variable of the completion
	printf '#compdef %s\n' "$names"
	printf '# zsh completion for kvpipe; made from the option tables of the programs\n\n'
	cat <<-'END'
		# kvpipe score ... is kv-score ...
		if [[ $service == kvpipe ]] && (( CURRENT > 2 )) && [[ $words[2] != help ]]; then
			service=kv-${words[2]#kv-}
			shift words
			(( CURRENT-- ))
			_kvpipe
			return
		fi

		case $service in
	END
	awk -F '\t' '
		function files(what) {
			if (what == "@dir")
				return "_files -/"
			if (what == "@snapshot")
				return "_files -g \"*.kv(-.) *(-/)\""
			return what ~ /^@/ ? "_files" : "(" what ")"
		}
		function quoted(text) {
			gsub(/\047/, "\047\\\047\047", text)
			return text
		}
		NF == 2 {
			if (n++)
				print "\t    \047*:operand:" operand "\047\n\t;;"
			print $1 ")\n\t_arguments -s \\"
			operand = files($2)
			next
		}
		{
			help = $5
			gsub(/[][\\:]/, "\\\\&", help)
			action = $3 == "-" ? "" : ":" $3 ":" ($4 == "-" ? " " : files($4))
			sub(/ \)$/, ")", action)
			both = $1 != "-" ? "(-" $1 " --" $2 ")" : ""
			rest = quoted("[" help "]" action) "\047 \\"
			if ($1 != "-")
				print "\t    \047" both "-" $1 ($3 == "-" ? "" : "+") rest
			print "\t    \047" both "--" $2 ($3 == "-" ? "" : "=") rest
		}
		END { print "\t    \047*:operand:" operand "\047\n\t;;\nesac" }' "$folder/options"
} >"$folder/_kvpipe"

# ---- fish ----

for program in $names; do
	awk -F '\t' -v program="$program" '
		# for a file named *.kv, a folder, any file, or one of the words
		function argument(words) {
			if (words == "-")
				return " -x"
			if (words == "@dir")
				return " -x -a \047(__fish_complete_directories)\047"
			if (words == "@snapshot")
				return " -r -k -a \047(__fish_complete_suffix .kv)\047"
			return words == "@file" ? " -r" : " -x -a \047" words "\047"
		}
		NF == 2 {
			inside = $1 == program
			if (inside && $2 !~ /^@/)
				print "complete -c " program " -n __fish_use_subcommand" \
				    " -f -a \047" $2 "\047"
			next
		}
		!inside { next }
		{
			help = $5
			gsub(/[\\\047]/, "\\\\&", help)
			words = $4
			sub(/ $/, "", words)
			letter = $1 != "-" ? " -s " $1 : ""
			print "complete -c " program letter " -l " $2 " -d \047" help "\047" \
			    ($3 != "-" ? argument(words) : "")
		}' "$folder/options" >"$folder/$program.fish"
done
