package interleave

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// word is a word as package word has it under its tag, which this package cannot import.
type word struct{ v atomic.Uint64 }

func (w *word) load() uint64 { return Load(&w.v, w.v.Load) }
func (w *word) store(v uint64) {
	Update("store", &w.v, func() (struct{}, bool) { w.v.Store(v); return struct{}{}, true })
}
func (w *word) release(v uint64) { Release(&w.v, v, func() { w.v.Store(v) }) }
func (w *word) add(d uint64) uint64 {
	return Update("add", &w.v, func() (uint64, bool) { return w.v.Add(d), true })
}

func (w *word) swap(was, is uint64) bool {
	return Update("compare-and-swap", &w.v, func() (bool, bool) { ok := w.v.CompareAndSwap(was, is); return ok, ok })
}

// outcomes explores a program and returns what its threads may return together.
func outcomes(t *testing.T, cfg Config, program func(x *Run) func() string) (all []string) {
	t.Helper()
	seen := map[string]bool{}
	Explore(t, cfg, func(x *Run) {
		result := program(x)
		x.Check(func() error { seen[result()] = true; return nil })
	})
	for s := range seen {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// fault explores a program that has a fault, and returns the report.
func fault(t *testing.T, cfg Config, program func(x *Run)) string {
	t.Helper()
	e := newExplorer(cfg, program)
	if x := e.all(); x != nil {
		return e.report(x)
	}
	t.Fatal("the fault was not found")
	return ""
}

func wantErr(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("the report lacks %q:\n%s", p, got)
		}
	}
}

// Two threads that each store to one word and then read the other (Dekker): with plain stores both can read 0, with
// exchanges they cannot. Intel SDM vol. 3, 9.2.3.4 and 9.2.3.9.
func TestStoreBuffersLetLoadsOvertakeReleases(t *testing.T) {
	for _, c := range []struct {
		store func(w *word)
		want  []string
	}{
		{func(w *word) { w.release(1) }, []string{"0 0", "0 1", "1 0", "1 1"}},
		{func(w *word) { w.store(1) }, []string{"0 1", "1 0", "1 1"}},
	} {
		got := outcomes(t, Config{}, func(x *Run) func() string {
			var a, b word
			var fromA, fromB uint64
			x.Go("first", func() { c.store(&a); fromB = b.load() })
			x.Go("second", func() { c.store(&b); fromA = a.load() })
			return func() string { return fmt.Sprint(fromA, fromB) }
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("outcomes %q, want %q", got, c.want)
		}
	}
}

// A thread sees its own stores at once, and others see them in their order (Intel SDM vol. 3, 9.2.3.2 and 9.2.3.5).
func TestStoreBuffersKeepTheOrder(t *testing.T) {
	got := outcomes(t, Config{}, func(x *Run) func() string {
		var data, flag word
		var own, seen uint64
		x.Go("writer", func() { data.release(1); own = data.load(); flag.release(1) })
		x.Go("reader", func() {
			if flag.load() == 1 {
				seen = data.load()
			} else {
				seen = 1
			}
		})
		return func() string { return fmt.Sprint(own, seen) }
	})
	if want := []string{"1 1"}; !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}

// Two programs of n steps each: the outcomes are those of every way to merge them.
func TestAllInterleavingsAreRun(t *testing.T) {
	const n = 4
	var want []string
	var merge func(order string, a, b int)
	merge = func(order string, a, b int) {
		if a == n && b == n {
			want = append(want, order)
			return
		}
		if a < n {
			merge(order+"a", a+1, b)
		}
		if b < n {
			merge(order+"b", a, b+1)
		}
	}
	merge("", 0, 0)
	slices.Sort(want)
	got := orders(t, Config{Preemptions: 2 * n}, n)
	if !slices.Equal(got, want) { // C(8, 4) = 70
		t.Errorf("%d orders, want %d", len(got), len(want))
	}
}

// orders returns in what orders two threads take n steps each.
func orders(t *testing.T, cfg Config, n int) []string {
	return outcomes(t, cfg, func(x *Run) func() string {
		var w word
		order := make([]byte, 2*n)
		for _, name := range "ab" {
			x.Go(string(name), func() {
				for range n {
					order[w.add(1)-1] = byte(name)
				}
			})
		}
		return func() string { return string(order) }
	})
}

// With a bound of p preemptions, two threads of n steps each are merged so that a thread is left at most p times
// while it could go on.
func TestPreemptionsAreBounded(t *testing.T) {
	const n = 3
	for p := range 5 {
		want := 0
		for m := range 1 << (2 * n) { // bit i: who takes step i
			left := [2]int{n, n}
			switches, ok := 0, true
			for i := range 2 * n {
				who := m >> i & 1
				if left[who]--; left[who] < 0 {
					ok = false
					break
				}
				if i > 0 && m>>(i-1)&1 != who && left[1-who] > 0 {
					switches++
				}
			}
			if ok && switches <= p {
				want++
			}
		}
		cfg := Config{Preemptions: p}
		if p == 0 {
			cfg.Preemptions = -1
		}
		got := orders(t, cfg, n)
		if len(got) != want {
			t.Errorf("%d preemptions: %d orders, want %d", p, len(got), want)
		}
	}
}

func TestLostUpdateIsFound(t *testing.T) {
	report := fault(t, Config{}, func(x *Run) {
		var w word
		for _, name := range []string{"one", "two"} {
			x.Go(name, func() { w.store(w.load() + 1) })
		}
		x.Name(&w.v, "sum")
		x.Check(func() error {
			if got := w.v.Load(); got != 2 {
				return fmt.Errorf("the sum is %d, want 2", got)
			}
			return nil
		})
	})
	wantErr(t, report, "the sum is 1, want 2", "load sum: 0", replayEnv, "explore_test.go:")
}

// A sleep that ends by its timeout changes no word. What the thread does next is explored like everything else.
func TestThreadGoesOnAfterTimeout(t *testing.T) {
	report := fault(t, Config{Timeouts: 1}, func(x *Run) {
		var inside, shut, other word
		token, memory := new(bool), make([]byte, 1)
		x.Go("closer", func() {
			shut.store(1)
			if inside.load() != 0 {
				Park(token, true)
				other.load()
			}
			Freed(memory)
		})
		x.Go("user", func() {
			inside.store(1)
			if shut.load() == 0 {
				other.load()
				Payload(memory, true)
			}
			Unpark(token)
		})
	})
	wantErr(t, report, "user touches memory that closer has freed")
}

// sleeper and ringer make the protocol of a bell; early announces before the value is read.
func bell(x *Run, early bool) {
	var value, sleeping, news word
	x.Go("sleeper", func() {
		for news.load() == 0 {
			var was uint64
			if early {
				sleeping.store(1)
				was = value.load()
			} else {
				was = value.load()
				sleeping.store(1)
			}
			if news.load() == 0 {
				Sleep(&value.v, func() bool { return value.v.Load() == was }, true)
			}
			sleeping.store(0)
		}
	})
	x.Go("ringer", func() {
		news.store(1)
		if sleeping.load() != 0 {
			value.add(1)
			Wake(&value.v, 1)
		}
	})
}

func TestSleeperIsWoken(t *testing.T) {
	Explore(t, Config{Preemptions: 8}, func(x *Run) { bell(x, false) })
	Explore(t, Config{Preemptions: 8, Timeouts: 2}, func(x *Run) { bell(x, true) })
}

// A plain store of the news lets the ringer look for sleepers before the sleeper can see the news.
func TestLostWakeupIsFound(t *testing.T) {
	report := fault(t, Config{}, func(x *Run) {
		var value, sleeping, news word
		x.Name(&value.v, "bell")
		x.Go("sleeper", func() {
			was := value.load()
			sleeping.store(1)
			if news.load() == 0 {
				Sleep(&value.v, func() bool { return value.v.Load() == was }, true)
			}
		})
		x.Go("ringer", func() {
			news.release(1)
			if sleeping.load() != 0 {
				value.add(1)
				Wake(&value.v, 1)
			}
		})
	})
	wantErr(t, report, "nobody can go on: sleeper is in sleep bell", "becomes visible")
}

func TestDeadlockIsFound(t *testing.T) {
	report := fault(t, Config{}, func(x *Run) {
		var a, b bool
		x.Name(&a, "lock a")
		x.Name(&b, "lock b")
		x.Go("one", func() { Lock(&a); Lock(&b); Unlock(&b); Unlock(&a) })
		x.Go("two", func() { Lock(&b); Lock(&a); Unlock(&a); Unlock(&b) })
	})
	wantErr(t, report, "nobody can go on: one is in lock lock b; two is in lock lock a")
}

// A loop that polls ends when the word changes, and is a fault when nobody changes it.
func TestPollInVainIsFound(t *testing.T) {
	poll := func(w *word) {
		for w.load() == 0 {
			Yield()
		}
	}
	Explore(t, Config{Preemptions: 5}, func(x *Run) {
		var w word
		x.Go("poller", func() { poll(&w) })
		x.Go("other", func() { w.store(0); w.store(1) })
	})
	report := fault(t, Config{}, func(x *Run) {
		var w word
		x.Go("poller", func() { poll(&w) })
		x.Go("other", func() { w.store(0) })
	})
	wantErr(t, report, "nobody can go on: poller is in a loop that polls")
}

// Two threads that poll by taking a lock change it for each other. They do not keep a third one from going on.
func TestPollersLetOthersGoOn(t *testing.T) {
	Explore(t, Config{Preemptions: 2}, func(x *Run) {
		var lock bool
		done := 0
		for _, name := range []string{"poller", "other poller"} {
			x.Go(name, func() {
				for {
					Lock(&lock)
					over := done == 1
					Unlock(&lock)
					if over {
						return
					}
					Yield()
				}
			})
		}
		x.Go("third", func() { Lock(&lock); done = 1; Unlock(&lock) })
	})
}

func TestEndlessLoopIsFound(t *testing.T) {
	report := fault(t, Config{}, func(x *Run) {
		var w word
		x.Go("one", func() {
			for w.load() == 0 {
			}
		})
	})
	wantErr(t, report, "no end after 20000 steps")
}

func TestRaceOfPayloadIsFound(t *testing.T) {
	message := func(x *Run, early bool) {
		var flag word
		data := make([]byte, 4)
		x.Go("writer", func() {
			if early {
				flag.release(1)
			}
			Payload(data, true)
			copy(data, "data")
			flag.release(1)
		})
		x.Go("reader", func() {
			for flag.load() == 0 {
				Yield()
			}
			Payload(data, false)
			if string(data) != "data" {
				x.Errorf("read %q", data)
			}
		})
	}
	Explore(t, Config{Preemptions: 5}, func(x *Run) { message(x, false) })
	report := fault(t, Config{}, func(x *Run) { message(x, true) })
	wantErr(t, report, "race: ", "and nothing orders the two")
}

func TestUseAfterFreeIsFound(t *testing.T) {
	report := fault(t, Config{}, func(x *Run) {
		var closed word
		data := make([]byte, 4)
		x.Go("user", func() {
			if closed.load() == 0 {
				Point("between look and use")
				Payload(data, false)
			}
		})
		x.Go("closer", func() { closed.store(1); Freed(data) })
	})
	wantErr(t, report, "user touches memory that closer has freed")
}

// A lock whose holder dies stays taken.
func TestDeathIsExplored(t *testing.T) {
	report := fault(t, Config{Deaths: 1}, func(x *Run) {
		var lock bool
		x.GoMortal("holder", func() { Lock(&lock); Unlock(&lock) })
		x.Go("waiter", func() { Lock(&lock); Unlock(&lock) })
	})
	wantErr(t, report, "nobody can go on: waiter is in lock", "holder       dies before unlock")
	Explore(t, Config{Deaths: 1}, func(x *Run) {
		var lock bool
		x.GoMortal("holder", func() { Lock(&lock); Unlock(&lock) })
		x.Go("waiter", func() {
			for {
				if got, _ := TryLock(&lock); got || x.Dead("holder") {
					return
				}
				Yield()
			}
		})
	})
}

func TestPanicIsReported(t *testing.T) {
	report := fault(t, Config{}, func(x *Run) {
		var w word
		x.Go("one", func() {
			defer w.add(1)
			_ = make([]int, 1)[w.load()]
		})
		x.Go("two", func() { w.store(1) })
	})
	wantErr(t, report, "one panics: runtime error: index out of range")
}

// A program that is another one in each run cannot be explored.
func TestNondeterminismIsReported(t *testing.T) {
	runs := 0
	report := fault(t, Config{}, func(x *Run) {
		var w word
		runs++
		for range 2 + runs%2 {
			x.Go("thread", func() { w.add(1) })
		}
	})
	wantErr(t, report, "the program does other things in each run")
}

func TestRandomSchedulesGoBeyondTheBound(t *testing.T) {
	// The fault needs three preemptions.
	program := func(x *Run) {
		var w word
		x.Go("one", func() {
			if w.swap(0, 1) && w.swap(2, 3) && w.swap(4, 5) {
				x.Errorf("here")
			}
		})
		x.Go("two", func() {
			_ = w.swap(1, 2) && w.swap(3, 4)
		})
	}
	Explore(t, Config{Preemptions: 1}, program)
	t.Setenv(moreEnv, "0")
	wantErr(t, fault(t, Config{Preemptions: 1}, program), "here", replayEnv+"=sr,")
}
