package flight

import (
	"fmt"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

func waiting(d time.Duration) string {
	if d < time.Microsecond {
		return ""
	}
	return ", waiting " + duration(d)
}

// duration formats a time with two or three digits.
func duration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%d s", d.Round(time.Second)/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	}
	return fmt.Sprintf("%d µs", d.Round(time.Microsecond)/time.Microsecond)
}

func be(ranks []int, past bool) string {
	switch {
	case past && len(ranks) == 1:
		return "was"
	case past:
		return "were"
	case len(ranks) == 1:
		return "is"
	}
	return "are"
}

func have(ranks []int) string {
	if len(ranks) == 1 {
		return " has"
	}
	return " have"
}

// ranksText lists ranks; named: with the word before them.
func ranksText(ranks []int, named bool) string {
	text := backend.RankList(ranks)
	if !named {
		text = strings.TrimPrefix(text, "ranks ")
	}
	return text
}

// shorten leaves out the details of calls that have different names.
func (a *analysis) shorten(texts []string) []string {
	names := make(map[string]bool)
	short := make([]string, len(texts))
	for i, t := range texts {
		short[i] = shortName(t)
		names[short[i]] = true
	}
	if len(names) == len(texts) {
		return short
	}
	return texts
}

func shortName(text string) string {
	name, _, _ := strings.Cut(text, " (")
	return name
}

// insert puts a number behind the name of a call.
func insert(call, number string) string {
	name, facts, ok := strings.Cut(call, " (")
	if !ok {
		return name + number
	}
	return name + number + " (" + facts
}
