package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// options are the options of a command, in GNU style: -n 4, -n4, --long VALUE,
// --long=VALUE, before or after arguments; -- ends them.
type options struct {
	stopAtArgument bool // what follows the first argument is all arguments
	list           []option
}

type option struct {
	short       byte   // 0: none
	long        string // "": none
	value, help string // value names the value in the help; "" for a switch
	set         func(string) error
}

func (o *options) add(opt option) { o.list = append(o.list, opt) }

// flag adds a switch: --name, --name=true, --name=false.
func (o *options) flag(p *bool, short byte, long, help string) {
	o.add(option{short, long, "", help, func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("want true or false")
		}
		*p = v
		return nil
	}})
}

// text adds an option with any value.
func (o *options) text(p *string, long, value, help string) {
	o.add(option{0, long, value, help, func(s string) error {
		*p = s
		return nil
	}})
}

// number adds an option whose value is a whole number from lo to hi.
func (o *options) number(p *int, short byte, long, value, help string, lo, hi int) {
	o.add(option{short, long, value, help, func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < lo || v > hi {
			return fmt.Errorf("want a whole number from %d to %d", lo, hi)
		}
		*p = v
		return nil
	}})
}

// duration adds an option whose value is a positive time.
func (o *options) duration(p *time.Duration, long, help string) {
	o.add(option{0, long, "TIME", help, func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v <= 0 {
			return fmt.Errorf("want a time above 0 such as 30s, 10m or 1h30m")
		}
		*p = v
		return nil
	}})
}

// parse sets the options in args and returns the arguments.
func (o *options) parse(args []string) (rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(rest, args...), nil
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			rest = append(rest, arg)
			if o.stopAtArgument {
				return append(rest, args...), nil
			}
			continue
		}
		var (
			name, value string
			hasValue    bool
			opt         *option
		)
		if long, ok := strings.CutPrefix(arg, "--"); ok {
			long, value, hasValue = strings.Cut(long, "=")
			name = "--" + long
			opt = o.find(func(q *option) bool { return q.long == long && long != "" })
		} else {
			name = arg[:2]
			value, hasValue = strings.CutPrefix(arg[2:], "=")
			hasValue = hasValue || value != ""
			opt = o.find(func(q *option) bool { return q.short == arg[1] })
		}
		if opt == nil {
			return nil, usagef("there is no option %s%s", name, o.suggest(arg))
		}
		if !hasValue {
			switch {
			case opt.value == "":
				value = "true"
			case len(args) == 0:
				return nil, usagef("%s needs a value: %s %s", name, name, opt.value)
			default:
				value, args = args[0], args[1:]
			}
		}
		if err := opt.set(value); err != nil {
			return nil, usagef("%s %s: %v", name, value, err)
		}
		if opt.long == "help" {
			return nil, nil
		}
	}
	return rest, nil
}

func (o *options) find(is func(*option) bool) *option {
	for i := range o.list {
		if is(&o.list[i]) {
			return &o.list[i]
		}
	}
	return nil
}

func (o *options) suggest(arg string) string {
	var names []string
	for _, q := range o.list {
		if q.long != "" {
			names = append(names, "--"+q.long)
		}
		if q.short != 0 && len(arg) == 2 {
			names = append(names, "-"+string(q.short))
		}
	}
	name, _, _ := strings.Cut(arg, "=")
	return didYouMean("--"+strings.TrimLeft(name, "-"), names)
}

// help writes one paragraph an option.
func (o *options) help(w io.Writer) {
	for _, q := range o.list {
		left := "    "
		if q.short != 0 {
			left = "-" + string(q.short)
			if q.long != "" {
				left += ", "
			}
		}
		if q.long != "" {
			left += "--" + q.long
		}
		if q.value != "" {
			left += " " + q.value
		}
		fmt.Fprintf(w, "  %-20s %s\n", left, strings.ReplaceAll(q.help, "\n", "\n"+strings.Repeat(" ", 23)))
	}
}

// didYouMean returns the name nearest to what was written as a question, or
// nothing when none is near.
func didYouMean(written string, names []string) string {
	best, least := "", 3
	for _, n := range names {
		d := distance(written, n)
		if rest, ok := strings.CutPrefix(n, written); ok && len(written) > 2 && len(rest) > 0 {
			d = 1 // an abbreviation
		}
		if d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the number of letters to change, add or leave out to make b of a
// (Levenshtein, 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
