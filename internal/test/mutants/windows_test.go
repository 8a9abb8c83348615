package mutants

// Closing, locks, and the server of windows: internal/comm, internal/window.
var windowMutants = []mutant{
	{file: "internal/comm/window.go",
		old: `		if k.swept {
			all = false
		} else {
			k.windows = append(k.windows, s)
		}
`,
		new: `		k.windows = append(k.windows, s)
`,
		why: "a window that is made during Close is registered when Close has the windows, and nobody closes it", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/windowclose.go",
		old: `	if !s.origin.Shut() {
		return
	}
`,
		new: `	s.origin.Shut()
	if s.target.IsShut() {
		return
	}
`,
		why: "Close of a communicator frees the window that another goroutine is closing", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/comm/windowclose.go",
		old: `	if !s.origin.AwaitEmpty(remaining(until)) || !s`,
		new: `	s.origin.AwaitEmpty(remaining(until))
	if !s`,
		why: "memory is unmapped below an access when the time of Close is up", test: "internal/comm TestInterleaveLongAccess"},
	{file: "internal/comm/windowclose.go",
		old: `		unlocked = s.unlockAll()`,
		new: `		unlocked = nil`,
		why: "Close of a communicator keeps the locks", test: "internal/comm TestInterleaveLockDuringClose"},
	{file: "internal/comm/windowclose.go",
		old: `	var inside error
`,
		new: `	if s.remote == nil {
		_ = s.unlockAll()
	}
	var inside error
`,
		why: "Close of a communicator releases the locks before the accesses have ended", test: "internal/comm TestInterleaveLockIsReleasedAfterAccess"},
	{file: "internal/comm/windowclose.go",
		old: `		s.origin.AwaitEmpty(remaining(s.answersUntil(until)))
		_ = s.unlockAll()
`,
		new: `		_ = s.unlockAll()
		s.origin.AwaitEmpty(remaining(s.answersUntil(until)))
`,
		why: "Close of a communicator releases the locks of a window between nodes before the accesses have ended", test: "internal/comm TestInterleaveLockIsReleasedAfterAccess"},
	{file: "internal/comm/windowclose.go",
		old: `	finished, arrived, near := s.core`,
		new: `	_ = s.unlockAll()
	finished, arrived, near := s.core`,
		why: "Close of a window releases the locks before the accesses have ended", test: "internal/comm TestInterleaveLockIsReleasedAfterAccess"},
	{file: "internal/comm/windowlock.go",
		old: `	late := err == nil && s.origin.IsShut()`,
		new: `	late := false`,
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
	{file: "internal/comm/job.go",
		old: `	k.life.changes.AwaitEmpty(remaining(end))
`,
		new: ``,
		why: "Close does not wait for the making of windows", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/windowclose.go",
		old: `	if !life.changes.Enter() {
		return nil // the communicator's Close closes it
	}
	defer life.changes.Leave()
`,
		new: ``,
		why: "closing a window is no change, so Close of the communicator abandons its memory", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/comm/window.go",
		old: `		if k.swept {
			all = false
`,
		new: `		if k.swept {
			all = true
`,
		why: "a window that is made during Close is not registered, and nobody closes it", test: "internal/comm TestInterleaveWindowMadeDuringClose"},
	{file: "internal/comm/windowclose.go",
		old: `	if !s.origin.Shut() {
		return nil
	}
`,
		new: `	s.origin.Shut()
`,
		why: "two goroutines close a window", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/comm/windowclose.go",
		old: `	if !s.origin.AwaitEmpty(remaining(until)) || !s.target.AwaitEmpty(remaining(until)) {`,
		new: `	if !s.target.AwaitEmpty(remaining(until)) {`,
		why: "Close unmaps the memory below a goroutine that waits for a lock", test: "internal/comm TestInterleaveLockDuringClose"},
	{file: "internal/comm/window.go",
		old: `	if !s.origin.Enter() {
		return errNotOpen
	}
`,
		new: `	if s.origin.IsShut() {
		return errNotOpen
	}
	s.origin.Stay()
`,
		why: "an operation looks whether the window is closed, and then touches its memory", test: "internal/comm TestInterleaveTwoClosers"},
	{file: "internal/window/lock.go",
		old: `(taken(kind, rank)))); s%waiter == 0 {`,
		new: `(taken(kind, rank)))); s == 1 {`,
		why: "Unlock wakes no sleeper", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `got, err := try(), error(nil)`,
		new: `got, err := false, error(nil)`,
		why: "a waiter does not look again after its announcement", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/lock.go",
		old: `; s%owner < waiter {`,
		new: `; s == owner {`,
		why: "a waiter for an exclusive lock gives up and wakes nobody", test: "internal/window TestInterleaveLockThatIsGivenUp"},
	{file: "internal/window/lock.go",
		old: `				if err = expired(); err == nil {`,
		new: `				if _ = expired; err == nil {`,
		why: "a waiter does not look for losses", test: "internal/window TestInterleaveLockOfDeadRank"},
	{file: "internal/window/lock.go",
		old: `	if s := LockState(p.head.state.Add(-uint64(taken(kind, rank)))); s%waiter`,
		new: `	s := p.LockState() - taken(kind, rank)
	p.head.state.Store(uint64(s))
	if s%waiter`,
		why: "a lock is released by a load and a store", test: "internal/window TestInterleaveLocks"},
	{file: "internal/window/part.go",
		old: `			if w.CompareAndSwap(old, with) {
				return
			}`,
		new: `			w.Store(with)
			return`,
		why: "a Put of a byte loses the byte beside it", test: "internal/window TestInterleaveUpdates"},
	{file: "internal/window/part.go",
		old: `			lock, err := p.stripe(at, expired)
			if err != nil {
				return err
			}
			with := view`,
		new: `			lock := &p.head.stripes[0]
			with := view`,
		why: "an update of a long element takes no lock", test: "internal/window TestInterleaveUpdates"},
	{file: "internal/comm/windowserve.go",
		old: `	for n := 0; s.target.Enter(); n++ {
`,
		new: `	for n := 0; !s.target.IsShut(); n++ {
		s.target.Stay()
`,
		why: "the server looks whether the window is closed, and then touches its memory", test: "internal/comm TestInterleaveServeDuringClose"},
	{file: "internal/comm/windowserve.go",
		old: `		case !mayWait && n == word.Spins(serveMost):`,
		new: `		case !mayWait && n < 0:`,
		why: "a goroutine of the program serves other ranks without end", test: "internal/comm TestServerReturnsToTheProgram", plain: true},
	{file: "internal/comm/windowaccess.go",
		old: `	if x.gate == &s.target && !errors.Is(err, backend.ErrPeerLost) {`,
		new: `	if errors.Is(err, backend.ErrPeerLost) || x.gate == &s.target {`,
		why: "the server waits without end for an update of a rank that has died", test: "internal/comm TestInterleaveServeBesideDeath"},
	{file: "internal/comm/windowlock.go",
		old: `	if err == nil && !l.state.CompareAndSwap(lockWaits, lockHeld) {`,
		new: `	if err == nil && l.state.Swap(lockHeld) == lockHeld {`,
		why: "the server keeps a lock that a rank of another node has given up", test: "internal/comm TestInterleaveServeLock"},
	{file: "internal/comm/windowlock.go",
		old: `		part.Ring()
`,
		new: ``,
		why: "a rank of another node gives a lock up, and the server goes on waiting for it", test: "internal/comm TestInterleaveServeLock"},
	{file: "internal/comm/windowlock.go",
		old: `l.state.Swap(lockOver) {`,
		new: `l.state.Load() {`,
		why: "a lock is released by the unlock, and again when the rank has left", test: "internal/comm TestInterleaveServeLock"},
	{file: "internal/comm/windowlock.go",
		old: `	s.remote.core.bc.Irecv(&l.departure, nil, source, s.departureTag())
`,
		new: ``,
		why: "a rank that has closed the communicator keeps a lock", test: "internal/comm TestInterleaveServeLockOfRankThatLeaves"},
	{file: "internal/comm/windowclose.go",
		old: `			s.over(l)
`,
		new: `			_ = l
`,
		why: "a rank that closes the window leaves its part locked for a rank of another node", test: "internal/comm TestInterleaveServeLockDuringClose"},
	{file: "internal/comm/window.go",
		old: `	s.inBarrier.Store(true)
	defer s.inBarrier.Store(false)
	err := s.failure()
`,
		new: `	err := s.failure()
	s.inBarrier.Store(true)
	defer s.inBarrier.Store(false)
`,
		why: "Fence looks whether the window has ended before it says that it waits", test: "internal/comm TestInterleaveFenceBesideEndOfWindow"},
	{file: "internal/comm/windowserve.go",
		old: `	if s.inBarrier.Load() && !isLoss(err) {`,
		new: `	if s.inBarrier.Load() && isLoss(err) {`,
		why: "a window ends, and a rank waits in Close for those that do not come", test: "internal/comm TestFenceAndCloseEndWithTheWindow", plain: true},
}
