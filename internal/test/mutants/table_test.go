package mutants

// table has the mutants. Those that were faults of the code once stand first in each folder.
var table = []mutant{
	{file: "internal/gate/gate.go",
		old: `	if g.count.Add(1)&shut == 0 {
		return true
	}
	g.Leave()
	return false`,
		new: `	if g.count.Load()&shut != 0 {
		return false
	}
	g.count.Add(1)
	return true`,
		why: "Enter looks and then acts", test: "internal/gate TestInterleaveGate"},
	{file: "internal/gate/gate.go",
		old: `p != nil {
			p.Unpark()`,
		new: `p == nil {
			p.Unpark()`,
		why: "Leave wakes nobody", test: "internal/gate TestInterleaveGate"},
	{file: "internal/gate/gate.go",
		old: `	g.waiter.Store(p)
	for !g.Empty() {`,
		new: `	for !g.Empty() {
		g.waiter.Store(p)`,
		why: "AwaitEmpty announces itself after the look", test: "internal/gate TestInterleaveGate"},
	{file: "internal/gate/gate.go",
		old: `g.count.Or(shut)&shut == 0 }`,
		new: `g.count.Or(shut)&shut == 0 && g.Empty() }`,
		why: "Shut decides twice", test: "internal/gate TestInterleaveGate"},
	{file: "internal/memlink/link.go",
		old: `	case l.in.peek() != nil: // it came meanwhile
		return true, nil
`,
		new: `	case l.in.peek() != nil: // it came meanwhile
`,
		why: "a read that has seen a frame reports nothing", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `s.r.head.Load()
	if h == s.head`,
		new: `s.r.head.Load() + 1
	if h == s.head`,
		why: "the sender takes a cell back too early", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `r.r.head.Store(r.next)`,
		new: `r.r.head.Store(r.next + 1)`,
		why: "the receiver gives a cell back before it has read it", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `		s.refresh()
		if s.tail-s.head >= cells {`,
		new: `		s.refresh()
		if s.tail-s.head > cells {`,
		why: "the sender overwrites the oldest cell of a full ring", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `	s.free = s.ends[(h-1)%cells]`,
		new: `	s.free = s.ends[h%cells]`,
		why: "the sender takes too much of the data ring back", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/link.go",
		old: `	left := l.in.r.left.Load() != 0
	switch {
	case l.in.peek() != nil: // it came meanwhile
		return true, nil
	case left`,
		new: `	came := l.in.peek() != nil
	left := l.in.r.left.Load() != 0
	switch {
	case came:
		return true, nil
	case left`,
		why: "a goodbye overtakes the last frames", test: "internal/memlink TestInterleaveRingOfDeadSender"},
	{file: "internal/memlink/transfer.go",
		old: `v>>32 == t.gen && uint32(v) < t.chunks && !l.gone()`,
		new: `v>>32 == t.gen && uint32(t.desc.claimed.Load()) < t.chunks && !l.gone()`,
		why: "a receive ends when all chunks are claimed", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `		t.chunks = t.desc.claimed.fill(t.gen, t.chunks)
	}
}`,
		new: `		t.chunks = 0
	}
}`,
		why: "Stop gives the buffer back under the sender", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `	if d.state.Load() != descState(gen, descAnnounced) {
		return false // own`,
		new: `	if d.state.Load() == 0 {
		return false // own`,
		why: "a revoked message changes where the next one goes", test: "internal/memlink TestInterleaveTransferAgain"},
	{file: "internal/memlink/transfer.go",
		old: `	withdrawn := t.desc.state.CompareAndSwap(descState(t.gen, descTaken), descState(t.gen, descFree))`,
		new: `	withdrawn := t.desc.state.Load() == descState(t.gen, descTaken)
	t.desc.state.Store(descState(t.gen, descFree))`,
		why: "Withdraw looks and then acts", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `	if len(l.takes) > 0 && !l.gone() && l.cfg.Kill != nil {`,
		new: `	if len(l.takes) > 0 && !l.gone() && l.cfg.Kill == nil {`,
		why: "Fence does not kill", test: "internal/memlink TestInterleaveFence"},
	{file: "internal/memlink/transfer.go",
		old: `	if !t.desc.state.CompareAndSwap(descState(t.gen, descAnnounced), descState(t.gen, descFree)) {
		return false
	}`,
		new: `	if t.desc.state.Load() != descState(t.gen, descAnnounced) {
		return false
	}`,
		why: "Revoke looks and then acts", test: "internal/memlink TestInterleaveRevokeBesideAccept"},
	{file: "internal/memlink/link.go",
		old: `	l.fence.Store(0)
	l.Ring()`,
		new: `	l.Ring()`,
		why: "a sender looks for sleepers before its cell is visible", test: "internal/memlink TestInterleaveSleepingRanks"},
	{file: "internal/memlink/ring.go",
		old: `	if r.next-r.acked < cells/4 &&`,
		new: `	if r.next-r.acked <= cells &&`,
		why: "the receiver gives no cell back", test: "internal/memlink TestInterleaveSleepingRanks"},
	{file: "internal/wait/bell.go",
		old: `word.FutexWait(&b.rung, seen, timeout)`,
		new: `word.FutexWait(&b.rung, b.rung.Load(), timeout)`,
		why: "the value slept on is read after the look", test: "internal/wait TestInterleaveBell"},
	{file: "internal/wait/bell.go",
		old: `	if b.Armed() {
		b.rung.Add(1)`,
		new: `	if b.asleep.CompareAndSwap(1, 0) {
		b.rung.Add(1)`,
		why: "a ringer takes the announcement back", test: "internal/wait TestInterleaveBellOfStoppedRinger"},
	{file: "internal/comm/onesided.go",
		old: `		if k.swept {
			all = false
		} else {
			k.onesided = append(k.onesided, s)
		}
`,
		new: `		k.onesided = append(k.onesided, s)
`,
		why: "a window that is made during Close is registered when Close has the windows, and nobody closes it", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/onesided.go",
		old: `	if s.origin.Shut() {
		soon`,
		new: `	s.origin.Shut()
	if !s.target.IsShut() {
		soon`,
		why: "Close of a communicator frees the window that another goroutine is closing", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/comm/onesided.go",
		old: `	if s.origin.AwaitEmpty(left(until)) && s.target.AwaitEmpty(left(until)) {`,
		new: `	s.origin.AwaitEmpty(left(until))
	if s.target.AwaitEmpty(left(until)) {`,
		why: "memory is unmapped below an access when the time of Close is up", test: "internal/comm TestInterleaveLongAccess"},
	{file: "internal/comm/onesided.go",
		old: `		_ = (&Onesided{soon, s}).unlockAll()
`,
		new: `		_ = soon
`,
		why: "Close of a communicator keeps the locks of one-sided windows", test: "internal/comm TestInterleaveLockDuringClose"},
	{file: "internal/comm/onesidedlock.go",
		old: `		if err == nil && s.origin.IsShut() {`,
		new: `		if false {`,
		why: "a Lock that ends during Close keeps the lock", test: "internal/comm TestInterleaveLockDuringClose"},
	{file: "internal/comm/comm.go",
		old: `	if id != 0 && !j.open.Enter() {
		return nil
	}
`,
		new: `	if id != 0 && !j.open.Enter() {
		j.open.Stay()
	}
`,
		why: "a communicator that is made during Close of the world stays open", test: "internal/comm TestInterleaveCommunicatorMadeDuringClose"},
	{file: "internal/comm/job.go",
		old: `	j.open.Shut()
`,
		new: `	defer j.open.Shut()
`,
		why: "the world lets communicators be made until the others are closed", test: "internal/comm TestInterleaveCommunicatorMadeDuringClose"},
	{file: "internal/comm/alloc.go",
		old: `	defer k.life.changes.Leave()
	if err := c.take(); err != nil {
		return nil, err
	}
	defer k.life.leave()
`,
		new: `	defer k.life.leave()
	if err := c.take(); err != nil {
		return nil, err
	}
	defer k.life.changes.Leave()
`,
		why: "Close finds the communicator taken by a change that has ended, and abandons a window", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/job.go",
		old: `	k.life.changes.AwaitEmpty(left(end))
`,
		new: ``,
		why: "Close does not wait for the making of windows", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/onesided.go",
		old: `	if !life.changes.Enter() {
		return nil // the communicator's Close closes it
	}
	defer life.changes.Leave()
`,
		new: ``,
		why: "closing a one-sided window is no change, so Close of the communicator abandons its memory", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/comm/window.go",
		old: `	return !k.swept
`,
		new: `	return true
`,
		why: "a shared window made during Close is registered when Close has the windows", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/onesided.go",
		old: `	if !s.origin.Shut() {
		life.leave()
		return nil
	}
`,
		new: `	s.origin.Shut()
`,
		why: "two goroutines close a window", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/window/window.go",
		old: `if w.AwaitEmpty(limit) {`,
		new: `if limit == 0 {`,
		why: "Close unmaps the memory below a goroutine that waits for a lock", test: "internal/window TestInterleaveCloseOfLockedWindow"},
	{file: "internal/window/window.go",
		old: `	if !w.Shut() {
		return nil
	}
	var err`,
		new: `	w.Shut()
	var err`,
		why: "two goroutines close a window, and the second unlocks memory that is gone", test: "internal/window TestInterleaveCloseOfLockedWindow"},
	{file: "internal/window/window.go",
		old: `	if !w.Enter() {
		return errClosed
	}
	w.mu.Lock()`,
		new: `	if w.IsShut() {
		return errClosed
	}
	w.Stay()
	w.mu.Lock()`,
		why: "Unlock looks whether the window is closed, and then touches it", test: "internal/window TestInterleaveCloseOfLockedWindow"},
	{file: "internal/window/window.go",
		old: `		err = w.releaseAll()`,
		new: `		clear(w.holds)`,
		why: "Close keeps the locks that this rank holds", test: "internal/window TestInterleaveCloseReleasesLock"},
	{file: "internal/window/lock.go",
		old: `		l.owner.Store(0)
		l.state.Store(0)
	} else`,
		new: `		l.owner.Store(0)
		l.state.Store(0)
		return
	} else`,
		why: "release wakes no sleeper", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `	l.asleep.Add(1)
	word.FutexWait(&l.state, s, nap)
	l.asleep.Add(^uint32(0))`,
		new: `	word.FutexWait(&l.state, s, nap)`,
		why: "a sleeper does not announce itself", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `word.FutexWait(&l.state, s, nap)`,
		new: `word.FutexWait(&l.state, l.state.Load(), nap)`,
		why: "the value slept on is read after the announcement", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `			if err := expired(); err != nil {
				return err
			}
`,
		new: ``,
		why: "a waiter does not look for losses", test: "internal/window TestInterleaveLockOfDeadRank"},
	{file: "internal/window/lock.go",
		old: `	} else if l.state.Add(^uint32(0)) != 0 {
		return
	}`,
		new: `	} else if s := l.state.Load() - 1; true {
		l.state.Store(s)
	}`,
		why: "a shared lock is released by a load and a store", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/cells.go",
		old: `			if w.CompareAndSwap(old, with) {
				return
			}`,
		new: `			w.Store(with)
			return`,
		why: "a Put of a byte loses the byte beside it", test: "internal/window TestInterleaveUpdates"},
	{file: "internal/window/cells.go",
		old: `			if err := expired(); err != nil {
				return nil, err
			}
`,
		new: `			_ = expired
`,
		why: "an update waits without end for a rank that has died", test: "internal/window TestInterleaveUpdateBehindDeadRank"},
	{file: "internal/window/cells.go",
		old: `			lock, err := c.lock(at, expired)
			if err != nil {
				return err
			}
			with := view`,
		new: `			lock := &c.words[stripeAt]
			with := view`,
		why: "an update of a long element takes no lock", test: "internal/window TestInterleaveUpdates"},
	{file: "internal/node/node.go",
		old: `		n.bell(rank)
	}`,
		new: `		b.Disarm()
		n.bell(rank)
	}`,
		why: "a rank takes another's announcement back before it sends what wakes it", test: "internal/node TestInterleaveBellOfStoppedRank"},
	{file: "internal/wait/crew.go",
		old: `	if m.leave || c.last != nil || m.w.Ready() {`,
		new: `	if m.leave || c.last != nil {`,
		why: "the leader announces its sleep and does not look again", test: "internal/wait TestInterleaveCrewBesideEnd"},
	{file: "internal/wait/crew.go",
		old: `		c.awake(l)
		c.Links.Ring()`,
		new: `		c.awake(l)`,
		why: "the leader's announcement is taken back without a ring", test: "internal/wait TestInterleaveCrewRouse"},
	{file: "internal/wait/crew.go",
		old: `		next = c.first
		if next != nil {`,
		new: `		if next = c.first; next != nil && next.next != nil {`,
		why: "the leader leaves without a successor", test: "internal/wait TestInterleaveCrew"},
	{file: "internal/wait/crew.go",
		old: `	if l := c.leader; l != nil && l.state == resting && l.w.Ready() {
		c.rouse()
	}
	c.mu.Unlock()`,
		new: `	c.mu.Unlock()`,
		why: "a completion wakes the followers and not the leader", test: "internal/wait TestInterleaveCrewBesideProgress"},
}
