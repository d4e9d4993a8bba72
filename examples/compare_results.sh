# shellcheck shell=sh disable=SC2154 # variables of compare.sh
# compare_results.sh - tables and plots of the runs of compare.sh, which sources this file
export LC_ALL=C CDPATH=

# Means over the documents, in the order in which methods and rates were given: method, rate, runs,
# accuracy, kept, footprint, peak, seconds, read, memory, with tabs.
means() {
	awk -F '\t' -v OFS='\t' '
		/^#/ { next }
		NR == FNR {
			if (!(($1, $2) in n)) {
				key[++keys] = $1 FS $2
				n[$1, $2] = 0
			}
			want[$1, $2, $3] = 1
			next
		}
		($1, $2, $3) in want {
			n[$1, $2]++
			for (i = 4; i <= 10; i++)
				sum[$1, $2, i] += $i
		}
		END {
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				count = n[name[1], name[2]]
				if (count == 0)
					continue
				line = name[1] OFS name[2] OFS count
				for (i = 4; i <= 10; i++) {
					mean = sum[name[1], name[2], i] / count
					line = line OFS (i == 4 ? 100 * mean : mean)
				}
				print line
			}
		}' "$wanted" "$runs"
}

# Functions of awk. interval(right, n): Wilson's score interval with 95 %, in %, "lower-upper".
# sign_test(a, b): of a differences one way and b the other, the chance that a fair coin is as
# uneven, two-sided.
statistics='
	function interval(right, n, z2, centre, half) {
		z2 = 1.959963984540054 ^ 2
		centre = (right + z2 / 2) / (n + z2)
		half = sqrt(z2 * (right * (n - right) / n + z2 / 4)) / (n + z2)
		return sprintf("%.0f-%.0f", 100 * centre - 100 * half + 1e-9, \
		    100 * centre + 100 * half)
	}
	function sign_test(a, b, n, few, i, log_term, p) {
		n = a + b
		few = a < b ? a : b
		log_term = -n * log(2)
		p = exp(log_term)
		for (i = 1; i <= few; i++) {
			log_term += log((n - i + 1) / i)
			p += exp(log_term)
		}
		return 2 * p < 1 ? 2 * p : 1
	}'

# Functions of awk. exceeds(): whether a line of the means keeps more than a twentieth above its
# rate. A method that keeps all rows and reads some does not. Of a budget in rows the rate is not
# known.
# shellcheck disable=SC2016
exceeding='
	function asked(rate) { return sub(/%$/, "", rate) ? rate + 0 : 100 * rate }
	function exceeds() {
		return by == "rate" && $2 != "all" && $9 > $5 - 0.01 && $5 > 1.05 * asked($2)
	}
'

print_table() {
	printf '%s\n\n' "$what"
	printf '| method | %s | accuracy %% | kept %% | footprint %% | memory %% ' "$by"
	echo '| peak % | read % | seconds | 95 % interval |'
	echo "|---|---|---|---|---|---|---|---|---|---|"
	awk -F '\t' -v by="$by" "$statistics$exceeding"'
		{
			printf "| %s | %s | %.0f | %.1f%s ", $1, $2, $4, $5, exceeds() ? " \\*" : ""
			printf "| %.1f | %.1f | %.1f | %.1f | %.2f ", $6, $10, $7, $9, $8
			print "| " interval($4 * $3 / 100, $3) " |"
			marked += exceeds()
		}
		END {
			if (marked)
				print "\n\\* more rows than were asked for:", \
				    "some are kept in any case"
		}' "$work/means"
}

# Of two files, $wanted and $runs: the kinds of documents in $kind, in order, methods and rates as
# in means(), and right[method, rate, document] of the runs that are wanted and there. For awk.
# shellcheck disable=SC2016
read_runs='
	BEGIN { FS = "\t" }
	/^#/ { next }
	NR == FNR {
		if (!(($1, $2) in seen))
			key[++keys] = $1 FS $2
		seen[$1, $2] = want[$1, $2, $3] = 1
		if (!($3 in kind_of)) {
			document[++documents] = $3
			kind_of[$3] = substr($3, index($3, "-") + 1)
			if (!(kind_of[$3] in met))
				kind[++kinds] = kind_of[$3]
			met[kind_of[$3]]++
		}
		next
	}
	($1, $2, $3) in want { right[$1, $2, $3] = $4 }
	function heading(first, i, rule) {
		rule = first
		gsub(/[^|]+/, "---", rule)
		for (i = 1; by_kind && i <= kinds; i++) {
			first = first " " kind[i] " |"
			rule = rule "---|"
		}
		print first "\n" rule
	}'

# Accuracy and interval of each kind.
print_kinds() {
	printf '\naccuracy by kind, %% (95 %% interval)\n\n'
	awk -v by="$by" -v by_kind=1 "$statistics$read_runs"'
		END {
			heading("| method | " by " |")
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				split("", n)
				split("", sum)
				for (d = 1; d <= documents; d++) {
					name[3] = document[d]
					if (!((name[1], name[2], name[3]) in right))
						continue
					n[kind_of[name[3]]]++
					sum[kind_of[name[3]]] += right[name[1], name[2], name[3]]
				}
				line = "| " name[1] " | " name[2] " |"
				for (i = 1; i <= kinds; i++) {
					count = n[kind[i]]
					rights = sum[kind[i]]
					cell = "-"
					if (count)
						cell = sprintf("%.0f (%s)", 100 * rights / count, \
						    interval(rights, count))
					line = line " " cell " |"
				}
				print line
			}
		}' "$wanted" "$runs"
}

# What each method has right that $reference has wrong, at the same rate, and the reverse.
print_pairs() {
	printf '\ncompared with %s, document by document\n\n' "$reference"
	awk -v by="$by" -v reference="$reference" -v by_kind="${kinds:-0}" "$statistics$read_runs"'
		END {
			heading("| method | " by " | documents | only it is right " \
			    "| only " reference " is | p |")
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				other = reference == "full" ? "all" : name[2]
				if (name[1] == reference || !((reference, other) in seen))
					continue
				split("", won)
				split("", lost)
				wins = losses = n = 0
				for (d = 1; d <= documents; d++) {
					one = name[1] SUBSEP name[2] SUBSEP document[d]
					two = reference SUBSEP other SUBSEP document[d]
					if (!(one in right && two in right))
						continue
					n++
					difference = right[one] - right[two]
					wins += difference > 0
					losses += difference < 0
					won[kind_of[document[d]]] += difference > 0
					lost[kind_of[document[d]]] += difference < 0
				}
				line = sprintf("| %s | %s | %d | %d | %d | %.2g |", \
				    name[1], name[2], n, wins, losses, sign_test(wins, losses))
				for (i = 1; by_kind && i <= kinds; i++)
					line = line sprintf(" +%d -%d |", won[kind[i]], \
					    lost[kind[i]])
				print line
			}
		}' "$wanted" "$runs"
}

# print_critical COLUMN WHAT: of a column of the means, where the full cache is there to compare
# others with. Of two rates with one value the better counts.
print_critical() {
	awk -F '\t' -v OFS='\t' -v column="$1" '
		!(($1, $column) in best) { key[++keys] = $1 FS $column; best[$1, $column] = $4 }
		$4 > best[$1, $column] { best[$1, $column] = $4 }
		END {
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				print name[1], name[2] / 100, best[name[1], name[2]] / 100
			}
		}' "$work/means" >"$work/critical"
	if grep -q '^full' "$work/critical" && grep -qv '^full' "$work/critical"; then
		printf '\ncritical %s\n' "$2"
		kv-critical "$work/critical"
	fi
}

# Which runs failed, a line for each method and rate.
print_failures() {
	[ -s "$failures" ] || return 0
	say "$(wc -l <"$failures") of $all_runs runs failed; they are in no mean:"
	awk -F '\t' '
		!(($1, $2) in n) { key[++keys] = $1 FS $2; why[$1, $2] = $4 }
		{ n[$1, $2]++ }
		END {
			for (k = 1; k <= keys; k++) {
				split(key[k], name, FS)
				printf "    %s at %s, %d times: %s\n", name[1], name[2], \
				    n[name[1], name[2]], why[name[1], name[2]]
			}
		}' "$failures" >&2
}

# differs COLUMN: whether methods differ by more than 2 % in a column of the means;
# where they do not, a panel would be an upright line.
differs() {
	awk -F '\t' -v column="$1" '
		$1 != "full" && (!n++ || $column < least) { least = $column }
		$1 != "full" && $column > most { most = $column }
		END { exit !(most - least > 2) }' "$work/means"
}

# panels: column of the blocks and label of each panel, with a tab between
panels() {
	{ differs 6 && printf '2\tKV footprint of the whole run, %%\n'; } || :
	printf '3\trows kept when the answer begins, %%\n'
	{ differs 9 && printf '4\tbytes of the cache read at each step, %%\n'; } || :
}

# plot_panels: what gnuplot draws, panel by panel; the legend is the last one's
plot_panels() {
	panels >"$work/panels"
	number=$(wc -l <"$work/panels")
	margins="90.0/$width,1-240.0/$width,0.13,0.9"
	title=$(printf %s "$what" | sed "s/'/''/g")
	echo "set multiplot layout 1,$number margins $margins spacing 60.0/$width \\"
	echo "    title '$title' noenhanced"
	echo 'set ylabel "right answers, %"; set key off'
	while IFS='	' read -r column label; do
		number=$((number - 1))
		# logarithmic where a scale from 0 would leave all but one at its edge
		cat <<-END
			set xlabel '$label'; least = least$column; most = most$column
			if (least > 0 && most > 8 * least) {
				set logscale x; set xrange [least/1.2:most*1.2]
				set xtics (.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
			} else {
				unset logscale x; set xrange [least-2:most+2]; set xtics auto
			}
		END
		[ "$number" -gt 0 ] || echo 'set key outside right top'
		# those that keep more than was asked for once more, with an open mark
		echo "plot for [i=0:blocks] 'blocks' index i using $column:5 with linespoints \\"
		echo "    title columnheader(2), 'more' using $column:5 with points pointtype 6 \\"
		echo "    pointsize 2 linecolor 'black' title more"
		echo 'set ylabel ""'
	done <"$work/panels"
}

# Accuracy against footprint, rows that are kept when the answer begins, and what is read.
# A line through the rates of each method.
draw() {
	width=$((440 * $(panels | wc -l) + 330))
	case $plot in
	*.svg) terminal="svg size $width,560 background 'white'" ;;
	*)     terminal="png size $width,560" ;;
	esac
	: >"$work/blocks"
	for method in $methods; do
		awk -F '\t' -v method="$method" '$1 == method { print $2, $6, $5, $9, $4 }' \
			"$work/means" | sort -g >"$work/block"
		[ -s "$work/block" ] || continue
		{
			echo "rate $method $method $method accuracy"
			cat "$work/block"
			printf '\n\n'
		} >>"$work/blocks"
	done
	awk -F '\t' -v by="$by" "$exceeding"'
		exceeds() { print $2, $6, $5, $9, $4; n++ }
		END { if (!n) print "- NaN NaN NaN NaN" }' "$work/means" >"$work/more"
	{
		echo "set terminal $terminal; set output 'plot'"
		echo 'set grid; stats "blocks" using 1 nooutput; blocks = STATS_blocks - 2'
		for column in 2 3 4 5; do
			echo "stats 'blocks' using $column nooutput"
			echo "least$column = STATS_min; most$column = STATS_max"
		done
		echo 'set yrange [least5-5:most5+5]'
		# nothing in the legend where there is none
		if grep -q NaN "$work/more"; then
			echo 'more = ""'
		else
			echo 'more = "more than asked"'
		fi
		plot_panels
	} >"$work/commands"
	(cd "$work" && gnuplot commands)
	mv "$work/plot" "$plot"
}
