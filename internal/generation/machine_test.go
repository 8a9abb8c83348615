package generation

import (
	"strings"
	"testing"
	"time"
)

// TestJobEndsBeforeItTakesAnotherSize has new processes for a size that the job has not taken when it ends.
func TestJobEndsBeforeItTakesAnotherSize(t *testing.T) {
	b := newPair()
	if err := b.Scale(4); err != nil {
		t.Fatal(err)
	}
	b.asks(2)
	b.Ended(0, true, false)
	if first, second := b.Ended(2, false, false), b.Ended(3, false, false); first != Ignored || second != Ignored {
		t.Errorf("the ends of new processes have fates %v and %v, want Ignored: %v", first, second, b.log)
	}
	if fate := b.Ended(1, false, false); fate != Decides {
		t.Errorf("the end of a member has fate %v, want Decides", fate)
	}
}

// TestRankFinishesWhileOthersJoin has a process end with status 0 before all are connected: the others do not wait for it.
func TestRankFinishesWhileOthersJoin(t *testing.T) {
	b := newBench(Config{Size: 2, Restarts: 3})
	b.asks(0)
	b.asks(1)
	b.join(0)
	b.Ended(1, true, false)
	b.asks(0)
	if got := strings.Join(b.log[2:], "; "); got != "0: broken; 0: out" {
		t.Errorf("the other one is told %q, want that it cannot join, and that there is no other world", got)
	}
}

// TestSizeIsAnnouncedAfterWithdrawal has a job asked for another size while a rank waits for the others in vain.
func TestSizeIsAnnouncedAfterWithdrawal(t *testing.T) {
	b := newPair()
	b.asks(0)
	if err := b.Scale(1); err != nil {
		t.Fatal(err)
	}
	b.log = nil
	b.Handle(0, Request{Withdraw: true})
	if got := strings.Join(b.log, "; "); got != "0: missing [1]; 0: resize; 1: resize" {
		t.Errorf("the withdrawal is followed by %q", got)
	}
}

// TestSizeIsAnnouncedAfterAttempt has a job asked for another size while ranks connect in vain, after which none asks again.
func TestSizeIsAnnouncedAfterAttempt(t *testing.T) {
	b := newPair()
	b.asks(0)
	b.asks(1)
	if err := b.Scale(1); err != nil {
		t.Fatal(err)
	}
	b.log = nil
	b.Handle(0, Request{Failed: true})
	b.Handle(1, Request{Failed: true})
	if got := strings.Join(b.log, "; "); got != "0: broken; 1: broken; 0: resize; 1: resize" {
		t.Errorf("the attempt that fails is followed by %q", got)
	}
}

// TestOutcastsAreNotAllWhileStartsAreDue has one process that the others count as lost, and that does not end. All others
// end as soon as they have joined, until the machine waits before it starts the next ones. The job is not over then.
func TestOutcastsAreNotAllWhileStartsAreDue(t *testing.T) {
	b := newBench(Config{Size: 2, Restarts: 10})
	b.asks(0)
	b.asks(1)
	b.join(0, 1)
	b.asks(0, 1)
	b.asks(1) // it is out, and goes on
	for len(b.active()) > 0 {
		var ids []int
		for _, p := range b.active() {
			ids = append(ids, p.id)
			b.asks(p.id)
		}
		b.join(ids...)
		for _, id := range ids {
			b.Ended(id, false, false)
		}
	}
	if ranks := b.Outcasts(); ranks != nil {
		t.Errorf("only %v are left, although others are to be started", ranks)
	}
}

// TestJobGrowsByThoseThatCame has one of two new processes fail when no restart is left.
func TestJobGrowsByThoseThatCame(t *testing.T) {
	b := newPair()
	if err := b.Scale(4); err != nil {
		t.Fatal(err)
	}
	b.log = nil
	b.asks(3)
	b.Ended(2, false, false)
	if got := strings.Join(b.log, "; "); got != "0: resize; 1: resize" {
		t.Errorf("the members are told %q", got)
	}
	b.log = nil
	b.asks(0)
	b.asks(1)
	if got := strings.Join(b.log, "; "); got != "0: j.1 0/3; 1: j.1 1/3; 3: j.1 2/3" {
		t.Errorf("the next world: %q", got)
	}
}

// TestLossIsNoChangeOfSize has an attempt of the survivors fail: nobody has asked for their number, and they know each other
// by their ranks in the world that they are in.
func TestLossIsNoChangeOfSize(t *testing.T) {
	b := newBench(Config{Size: 3, Min: 1, Max: 3})
	for id := range 3 {
		b.asks(id)
	}
	b.join(0, 1, 2)
	b.Ended(0, false, false)
	b.asks(1, 0)
	b.asks(2, 0)
	b.Handle(2, Request{Failed: true})
	b.log = nil
	b.asks(1, 0)
	b.Handle(1, Request{Withdraw: true})
	if got := strings.Join(b.log, "; "); got != "1: missing [2]" {
		t.Errorf("the members are told %q", got)
	}
}

// TestDismissedProcessOwesNoAnswer dismisses a process whose attempt to join has been broken.
func TestDismissedProcessOwesNoAnswer(t *testing.T) {
	b := newBench(Config{Size: 2, Min: 1, Max: 2})
	b.asks(0)
	b.asks(1)
	b.Handle(0, Request{Failed: true})
	b.asks(0)
	if err := b.Scale(1); err != nil {
		t.Fatal(err)
	}
	if pause, due := b.Wait(); due {
		t.Errorf("something is due in %v: %v", pause, b.log)
	}
}

// TestTimeInWhichOwnerIsStoppedDoesNotCount has the owner of the machine stopped until deadlines have passed. Whichever event comes
// first then, the processes have their time to answer.
func TestTimeInWhichOwnerIsStoppedDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		begin  func(b *bench)
		answer func(b *bench)
		silent string // what follows if nobody answers
	}{
		{"an attempt to join is broken", func(b *bench) { b.Handle(0, Request{Failed: true}) }, func(b *bench) { b.asks(0); b.asks(1); b.asks(2) },
			"kill 1, start 3 as 1, kill 2, start 4 as 2"}, // process 0 has said that it knows
		{"a member that has not asked is counted as lost", func(b *bench) { b.join(0, 1, 2); b.asks(0, 2); b.asks(1, 2) }, func(b *bench) { b.asks(2) },
			"kill 2, start 3 as 2"},
	} {
		for _, first := range []struct {
			name string
			do   func(b *bench)
		}{
			{"Tick", func(b *bench) { b.Tick() }},
			{"Handle", func(b *bench) { b.Handle(0, Request{Lost: []int{2}}) }},
			{"Ended", func(b *bench) { b.Ended(99, false, false) }},
			{"Scale", func(b *bench) { _ = b.Scale(3) }},
		} {
			for _, answers := range []bool{true, false} {
				b := newBench(Config{Size: 3, Restarts: 9})
				for id := range 3 {
					b.asks(id)
				}
				c.begin(b)
				b.now = b.now.Add(time.Minute)
				b.log = nil
				first.do(b)
				b.after(doubt)
				if len(b.log) > 0 {
					t.Errorf("%s, then %s comes first: %q follows", c.name, first.name, b.log)
				}
				if answers {
					c.answer(b)
				}
				b.after(patience)
				killed := strings.Contains(strings.Join(b.log, ", "), "kill")
				if got := strings.Join(b.log, ", "); answers && killed || !answers && got != c.silent {
					t.Errorf("%s, then %s comes first, and all answer is %v: %q follows", c.name, first.name, answers, got)
				}
			}
		}
	}
}

// Each case begins when the ranks of generation 0, of which process i is rank i, have joined.
func TestEventsDecideNextWorld(t *testing.T) {
	text := "here"
	for _, c := range []struct {
		name   string
		config Config
		events func(b *bench)
		want   string
	}{
		{"a lost rank is replaced under its number", Config{Size: 3, Restarts: 1}, func(b *bench) {
			b.Ended(1, false, false)
			b.asks(0, 1)
			b.asks(3)
			b.asks(2)
			b.join(0, 2, 3)
		}, "start 3 as 1, 0: j.1 0/3, 3: j.1 1/3, 2: j.1 2/3, 0: go, 3: go, 2: go"},
		{"rank 0 too, and its process shares first", Config{Size: 2, Restarts: 1}, func(b *bench) {
			b.Ended(0, false, false)
			b.asks(2)
			b.asks(1, 0)
			b.Handle(1, Request{Share: &text}) // not rank 0
			b.Handle(2, Request{Share: &text})
		}, "start 2 as 0, 2: j.1 0/2, 1: j.1 1/2, 2: shared here, 1: shared here"},
		{"all ranks end", Config{Size: 2, Restarts: 2}, func(b *bench) {
			b.Ended(0, false, false)
			b.Ended(1, false, false)
			b.asks(3)
			b.asks(2)
		}, "start 2 as 0, start 3 as 1, 2: j.1 0/2, 3: j.1 1/2"},
		{"a rank that follows takes no restart", Config{Size: 2, Restarts: 1}, func(b *bench) {
			b.Ended(0, false, false)
			b.note("left %d", b.Restarts)
			b.Ended(1, false, true)
			b.note("left %d", b.Restarts)
		}, "start 2 as 0, left 0, start 3 as 1, left 0"},
		{"a rank counts as lost only when the others wait already", Config{Size: 3, Restarts: 1}, func(b *bench) {
			b.Handle(0, Request{Lost: []int{2}}) // a member's, which may be about the world before
			b.asks(0)
			b.asks(1)
			b.after(2 * doubt)
			b.note("waits")
			b.Handle(0, Request{Lost: []int{2}})
			b.after(2 * doubt)
			b.asks(3)
		}, "waits, kill 2, start 3 as 2, 0: j.1 0/3, 1: j.1 1/3, 3: j.1 2/3"},
		{"the end of a job lets no process start", Config{Size: 2, Restarts: 3}, func(b *bench) {
			b.Ended(1, false, false)
			b.Ended(2, false, false)
			b.note("%v", b.Due(1))
			b.End("over")
			b.note("%v", b.Due(1))
			b.after(time.Minute)
			b.asks(0)
		}, "start 2 as 1, true, false, 0: out"},
		{"without restarts a job of fixed size cannot go on", Config{Size: 2}, func(b *bench) {
			b.asks(0)
			b.note("%v", b.Ended(1, false, false))
		}, "0: out, 0"},
		{"an elastic job goes on, in the order of the ranks", Config{Size: 4, Min: 2, Max: 4}, func(b *bench) {
			b.note("%v", b.Ended(1, false, false))
			b.asks(3)
			b.asks(0)
			b.asks(2)
		}, "2, 0: j.1 0/3, 2: j.1 1/3, 3: j.1 2/3"},
		{"a process that has not asked, but is lost for the others, is killed", Config{Size: 3, Restarts: 1}, func(b *bench) {
			b.asks(0, 2)
			b.asks(1)
			b.after(doubt - 1)
			b.after(1)
			b.asks(3)
			b.note("%v", b.Ended(2, false, false))
		}, "kill 2, start 3 as 2, 0: j.1 0/3, 1: j.1 1/3, 3: j.1 2/3, 3"},
		{"the ranks of a host that falls silent take one restart", Config{Size: 4, Restarts: 1}, func(b *bench) {
			b.asks(0, 2, 3)
			b.asks(1, 2)
			b.after(patience)
			b.note("left %d", b.Restarts)
			b.Ended(2, false, true) // the host is lost
			b.Ended(3, false, true)
			b.Ended(4, false, true)
			b.Ended(5, false, true)
		}, "kill 2, start 4 as 2, kill 3, start 5 as 3, left 0, start 6 as 2, start 7 as 3"},
		{"so do those that do not answer after a world that not all could join", Config{Size: 4, Restarts: 1}, func(b *bench) {
			for id := range 4 {
				b.asks(id)
			}
			b.Handle(0, Request{Failed: true})
			b.log = nil
			b.asks(0)
			b.asks(1)
			b.after(patience)
			b.note("left %d", b.Restarts)
		}, "kill 2, start 4 as 2, kill 3, start 5 as 3, left 0"},
		{"in the next world that restart counts no more", Config{Size: 2, Restarts: 1}, func(b *bench) {
			b.asks(0, 1)
			b.after(patience)
			b.asks(2)
			b.join(0, 2)
			b.log = nil
			b.note("%v", b.Ended(2, false, true))
		}, "0"},
		{"a process that is slow to ask is waited for", Config{Size: 2, Restarts: 1}, func(b *bench) {
			b.asks(0)
			b.after(time.Hour)
			b.asks(1)
		}, "0: j.1 0/2, 1: j.1 1/2"},
		{"a process that does not answer is replaced", Config{Size: 2, Restarts: 1}, func(b *bench) {
			b.deaf = true
			b.asks(0)
			b.after(2*patience - watchEvery)
			b.note("now")
			b.after(time.Minute)
		}, "now, kill 1, start 2 as 1"},
		{"of the two sides of a cut the larger goes on", Config{Size: 3, Restarts: 2}, func(b *bench) {
			b.asks(0, 1, 2)
			b.asks(2, 0)
			b.asks(1, 0)
			b.asks(3)
		}, "0: out, start 3 as 0, 3: j.1 0/3, 1: j.1 1/3, 2: j.1 2/3"},
		{"of two halves that with the lowest rank", Config{Size: 2, Restarts: 2}, func(b *bench) {
			b.asks(1, 0)
			b.asks(0, 1)
		}, "1: out, start 2 as 1"},
		{"a world that not all can join is left by all, and nobody of it is lost", Config{Size: 3, Restarts: 9}, func(b *bench) {
			b.Ended(1, false, false)
			b.asks(0, 1)
			b.asks(2, 1)
			b.asks(3)
			b.join(0, 3)
			b.Handle(2, Request{Failed: true})
			b.asks(0, 1) // of the world before, whose rank 1 is another process now
			b.asks(2, 1)
			b.asks(3)
			b.join(0, 2, 3)
		}, "start 3 as 1, 0: j.1 0/3, 3: j.1 1/3, 2: j.1 2/3, 0: broken, 3: broken, 2: broken, " +
			"0: j.2 0/3, 3: j.2 1/3, 2: j.2 2/3, 0: go, 3: go, 2: go"},
		{"a process that ends while all join is replaced, and one that does not answer then is killed", Config{Size: 3, Restarts: 9}, func(b *bench) {
			b.asks(0)
			b.asks(1)
			b.asks(2)
			b.join(0)
			b.Ended(2, false, false)
			b.asks(0)
			b.after(patience - 1)
			b.note("now")
			b.after(1)
			b.asks(3)
			b.asks(4)
		}, "0: j.1 0/3, 1: j.1 1/3, 2: j.1 2/3, 0: broken, 1: broken, start 3 as 2, now, kill 1, start 4 as 1, 0: j.2 0/3, 4: j.2 1/3, 3: j.2 2/3"},
		{"the process that is cut from most others does not go on", Config{Size: 4, Restarts: 9}, func(b *bench) {
			b.asks(0)
			b.asks(1, 2, 3)
			b.asks(2, 1)
			b.asks(3, 1)
		}, "1: out, start 4 as 1"},
		{"a few that count most others as lost wait for them", Config{Size: 3, Restarts: 9}, func(b *bench) {
			b.asks(0, 1, 2)
			b.after(patience - 1)
			b.asks(1, 0)
			b.asks(2, 0)
		}, "0: out, start 3 as 0"},
		{"but not without end", Config{Size: 3, Restarts: 9}, func(b *bench) {
			b.asks(0, 1, 2)
			b.after(patience - 1)
			b.note("now")
			b.after(1)
		}, "now, kill 1, start 3 as 1, kill 2, start 4 as 2"},
		{"a rank cannot follow nobody", Config{Size: 2, Restarts: 1}, func(b *bench) {
			b.Ended(0, false, true)
			b.note("left %d", b.Restarts)
		}, "start 2 as 0, left 0"},
		{"a deadline names who is missing", Config{Size: 3, Restarts: 1}, func(b *bench) {
			b.asks(0)
			b.Handle(0, Request{Withdraw: true})
			b.asks(1)
			b.asks(2)
			b.asks(0)
			b.Handle(0, Request{Withdraw: true}) // too late: its place is on its way
		}, "0: missing [1 2], 0: j.1 0/3, 1: j.1 1/3, 2: j.1 2/3"},
		{"after a rank has finished there is no other world", Config{Size: 3, Restarts: 1}, func(b *bench) {
			b.asks(0)
			b.Ended(1, true, false)
			b.asks(2)
			b.note("%v", b.Ended(2, false, false))
		}, "0: out, 2: out, 0"},
		{"a process that ends at once is started again after a pause", Config{Size: 1, Restarts: 3}, func(b *bench) {
			b.Ended(0, false, false)
			b.Ended(1, false, false)
			b.after(pauseUnit - 1)
			b.note("now")
			b.after(1)
			b.Ended(2, false, false)
			b.after(2*pauseUnit - 1)
			b.note("now")
			b.after(1)
		}, "start 1 as 0, now, start 2 as 0, now, start 3 as 0"},
		{"a job grows when the new processes are there", Config{Size: 2, Min: 1, Max: 3}, func(b *bench) {
			b.note("%v", b.Scale(3))
			b.note("now")
			b.asks(2)
			b.asks(0)
			b.asks(1)
		}, "start 2 as 2, <nil>, now, 0: resize, 1: resize, 0: j.1 0/3, 1: j.1 1/3, 2: j.1 2/3"},
		{"a job shrinks", Config{Size: 3, Min: 1, Max: 3}, func(b *bench) {
			b.note("%v", b.Scale(1))
			b.asks(2)
			b.asks(1)
			b.asks(0)
			b.note("%v", b.Ended(1, false, false))
		}, "0: resize, 1: resize, 2: resize, <nil>, 1: leaves, 2: leaves, 0: j.1 0/1, 3"},
		{"a job changes its mind", Config{Size: 2, Min: 1, Max: 4}, func(b *bench) {
			b.note("%v", b.Scale(4))
			b.note("%v", b.Scale(3))
			b.note("%v", b.Ended(3, false, false))
			b.asks(2)
		}, "start 2 as 2, start 3 as 3, <nil>, 3: leaves, <nil>, 3, 0: resize, 1: resize"},
		{"survivors are the ranks of a job that shrinks before they ask", Config{Size: 4, Min: 1, Max: 4}, func(b *bench) {
			b.Ended(0, false, false)
			b.Ended(1, false, false)
			b.note("%v %v %v", b.Lacks(2), b.Lacks(3), b.Lacks(4))
			b.note("%v", b.Scale(2))
			b.asks(3, 0, 1)
			b.asks(2, 0, 1)
		}, "[] [0] [0 1], 2: resize, 3: resize, <nil>, 2: j.1 0/2, 3: j.1 1/2"},
		{"a size outside the limits", Config{Size: 2, Min: 1, Max: 4}, func(b *bench) {
			b.note("%v", b.Scale(5))
		}, "5 ranks: the job can have 1 to 4"},
	} {
		b := newBench(c.config)
		for id := range c.config.Size {
			b.asks(id)
		}
		for id := range c.config.Size {
			b.join(id)
		}
		b.log = nil
		c.events(b)
		if got := strings.Join(b.log, ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}
