package mutants

// Closing, and locks in shared memory: internal/comm, internal/window.
var windowMutants = []mutant{
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
		old: `		l.state.Store(0)
	} else`,
		new: `		l.state.Store(0)
		return
	} else`,
		why: "release wakes no sleeper", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `			got := l.try(kind, rank)
			if !got {`,
		new: `			got := false
			if !got {`,
		why: "a waiter does not look again after its announcement", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `		if l.wanted.Add(^uint32(0)) == 0 {`,
		new: `		if l.wanted.Add(^uint32(0)); false {`,
		why: "a waiter for an exclusive lock gives up and wakes nobody", test: "internal/window TestInterleaveLockThatIsGivenUp"},
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
	{file: "internal/comm/onesidedserve.go",
		old: `	for s.target.Enter() {
`,
		new: `	for !s.target.IsShut() {
		s.target.Stay()
`,
		why: "the server looks whether the window is closed, and then touches its memory", test: "internal/comm TestInterleaveServeDuringClose"},
	{file: "internal/comm/onesidedaccess.go",
		old: `	if x.gate == &s.target && !errors.Is(err, backend.ErrPeerLost) {`,
		new: `	if errors.Is(err, backend.ErrPeerLost) || x.gate == &s.target {`,
		why: "the server waits without end for an update of a rank that has died", test: "internal/comm TestInterleaveServeBesideDeath"},
}
