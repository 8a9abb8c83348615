package mutants

// Ranks that are goroutines, and the threads of a rank: backend/local, pool.
var localMutants = []mutant{
	{file: "backend/local/cell.go",
		old: `number := e.word.Load() - cellEmpty + cellStates`,
		new: `number := e.word.Load() - cellEmpty`,
		why: "a receive takes the cell of another goroutine for its own", test: "backend/local TestInterleaveCell"},
	{file: "backend/local/cell.go",
		old: `	r.mu.Lock()
	r.cell.withdraw()`,
		new: `	r.mu.Lock()`,
		why: "a receive stays in the cell while a message comes to the queue", test: "backend/local TestInterleaveCellKeepsOrder"},
	{file: "backend/local/cell.go",
		old: `	if !e.env.Takes(env) || `,
		new: `	if `,
		why: "the receive in the cell gets any message", test: "backend/local TestInterleaveCell"},
	{file: "backend/local/cell.go",
		old: ` || q != nil && e.at != uint32(q.tail.Load()) {`,
		new: ` {`,
		why: "a message that goes through the cell overtakes one in the ring", test: "backend/local TestInterleaveRing"},
	{file: "backend/local/cell.go",
		old: `	r.lockOnly()
	r.drain(nil)
`,
		new: `	r.lockOnly()
`,
		why: "a message that goes to the queue overtakes one in the ring", test: "backend/local TestInterleaveRing"},
	{file: "backend/local/ring.go",
		old: `left := &q.all[n%ringEntries], !q.unattended(end)`,
		new: `left := &q.all[n%ringEntries], true`,
		why: "a message stays in the ring of a rank that sleeps", test: "backend/local TestInterleaveRing"},
	{file: "backend/local/ring.go",
		old: `			if last || q.tail.Load() == n {`,
		new: `			if true {`,
		why: "a message overtakes one behind an entry that is not complete", test: "backend/local TestInterleaveRing"},
	{file: "backend/local/p2p.go",
		old: `if absent || c.notifies.Load() {`,
		new: `if absent {`,
		why: "a receive with a Notify is posted while its message is in the ring", test: "backend/local TestInterleaveRingBesideNotify"},
	{file: "backend/local/p2p.go",
		old: `			if absent || c.notifies.Load() {
`,
		new: `			if c.notifies.Load() {
`,
		why: "a receive does not get the message of a rank that has left since", test: "backend/local TestInterleaveMessages"},
	{file: "backend/local/cell.go",
		old: `			if e.word.CompareAndSwap(w, w-cellWaiting+cellWriting) {`,
		new: `			if e.word.Store(w - cellWaiting + cellWriting); true {`,
		why: "a receive is withdrawn while a sender writes its message", test: "backend/local TestInterleaveCell"},
	{file: "backend/local/p2p.go",
		old: `!lingers || c.me.posted.Len() > 0 ||`,
		new: `!lingers ||`,
		why: "a receive lingers in the cell before one that was posted first", test: "backend/local TestInterleaveCellKeepsOrder"},
	{file: "pool/worker.go",
		old: `		if w.id == 0 && w.seen&kindMask == leads {`,
		new: `		if w.id == 0 && w.pool.lead != nil {`,
		why: "worker 0 takes the function of Run before its order, and two goroutines move the epoch", test: "pool TestInterleaveRun"},
	{file: "pool/job.go",
		old: `	p.left.Store(int64(chunks))
	parts := count`,
		new: `	parts := count
	defer p.left.Store(int64(chunks))`,
		why: "the count of chunks is set when workers may have subtracted from it", test: "pool TestInterleaveLoops"},
	{file: "pool/wait.go",
		old: `		if p.epoch.Load() == w.seen {`,
		new: `		if true {`,
		why: "a worker sleeps without looking once more after the announcement", test: "pool TestInterleaveLoops"},
	{file: "pool/wait.go",
		old: `		if p.isOver() {`,
		new: `		if false {`,
		why: "the caller sleeps without looking once more", test: "pool TestInterleaveLoops"},
	{file: "pool/job.go",
		old: `	if uint32(v>>32) != uint32(epoch>>kindBits) {`,
		new: `	if false {`,
		why: "a late worker takes chunks of a loop that it has not seen", test: "pool TestInterleaveLoops"},
	{file: "pool/job.go",
		old: `		if s.word.CompareAndSwap(v, v-1) {`,
		new: `		if s.word.Store(v - 1); true {`,
		why: "two workers take one chunk: look, then store", test: "pool TestInterleaveLoops"},
	{file: "pool/worker.go",
		old: `	if w.pool.left.Add(-n) == 0 {`,
		new: `	left := w.pool.left.Load() - n
	w.pool.left.Store(left)
	if left == 0 {`,
		why: "chunks done are subtracted in two steps", test: "pool TestInterleaveLoops"},
	{file: "pool/worker.go",
		old: `	p.stop.Store(failed)
	w.done += p.drain(w.seen)
`,
		new: `	p.stop.Store(failed)
	p.drain(w.seen)
`,
		why: "chunks taken after a failure are counted nowhere", test: "pool TestInterleaveFailures"},
	{file: "backend/local/fail.go",
		old: `	} else if control := j.groups[g.key.control()]; control != nil {
`,
		new: `	} else {
		control := j.groups[g.key.control()]
		j.mu.Unlock()
		j.mu.Lock()
		if control == nil {
			control = g
		}
`,
		why: "Close looks for the control communicator, and acts after another rank has made it", test: "backend/local TestInterleaveLeaveBesideDerive"},
	{file: "backend/local/open.go",
		old: `			if j.peers[w].Over() || g`,
		new: `			if g`,
		why: "a new communicator does not inherit who has left the job", test: "backend/local TestInterleaveLeaveBesideDerive"},
	{file: "backend/local/fail.go",
		old: `		groups = j.all()
		j.peers`,
		new: `		j.peers`,
		why: "a rank that leaves the job is gone from the world only", test: "backend/local TestInterleaveLeaveBesideDerive"},
	{file: "backend/local/wait.go",
		old: `func (c *Comm) Wake() { c.me.crew.Ask() }`,
		new: `func (c *Comm) Wake() {}`,
		why: "Wake does not make waiters look again", test: "backend/local TestInterleaveWaiters"},
	{file: "backend/local/arrivals.go",
		old: `		m.parked.Add(1)
		late = c.me.crew.AwaitPending(c.bound, (*round)(c))
`,
		new: `		late = c.me.crew.AwaitPending(c.bound, (*round)(c))
		m.parked.Add(1)
`,
		why: "a rank sleeps and does not tell the last one to arrive", test: "backend/local TestInterleaveCollectives"},
	{file: "backend/local/arrivals.go",
		old: `	if last >= k {
		m.ended.Store(0)
	} else {
		m.ended.Store(decided + last)
	}`,
		new: `	m.ended.Store(decided + min(last, k-1))`,
		why: "a round that completes is stopped too: one rank returns nil from a broken communicator", test: "backend/local TestInterleaveDeadlineOfCollective"},
	{file: "backend/local/arrivals.go",
		old: `	if e >= decided {
		return`,
		new: `	if e >= decided && !done {
		return`,
		why: "the last rank to arrive completes a round that was given up", test: "backend/local TestInterleaveDeadlineOfCollective"},
	{file: "backend/local/arrivals.go",
		old: `	for ; e == deciding; e = m.ended.Load() {
		word.Yield()
	}
`,
		new: ``,
		why: "a rank completes a round while another one ends the rounds", test: "backend/local TestInterleaveDeadlineOfCollective"},
	{file: "backend/local/collective.go",
		old: `	unread := err == nil || c.group.end.Load() == nil || c.waitUnread()`,
		new: `	unread := true`,
		why: "a rank gives up while another one reads its buffer", test: "backend/local TestInterleaveDeadlineOfCollective"},
	{file: "backend/local/op.go",
		old: `	if !taken && !at.arrived.Remove(&o.node) && !at.posted.Remove(&o.node) {`,
		new: `	if at.arrived.Remove(&o.node); !o.send && !at.posted.Remove(&o.node) {`,
		why: "a send ends at its deadline while the message is being received", test: "backend/local TestInterleaveWithdrawAgainstMprobe"},
	{file: "backend/local/op.go",
		old: `			c.Break(err)
`,
		new: ``,
		why: "a receive is given up while its message is copied, and the message is lost", test: "backend/local TestInterleaveDeadlineOfCopy"},
	{file: "backend/local/op.go",
		old: `	o.gone = o.gone || taken
`,
		new: ``,
		why: "the receive of a message that was withdrawn says that the sender has left", test: "backend/local TestInterleaveWithdrawAgainstMprobe"},
	{file: "backend/local/op.go",
		old: `	if later == nil {
		r.crew.Ask()
`,
		new: `	if later == nil {
`,
		why: "a completion does not wake the goroutine that waits", test: "backend/local TestInterleaveWaiters"},
	{file: "backend/local/op.go",
		old: `	later := o.settle(backend.Status{}, err)
	at.mu.Unlock()
`,
		new: `	at.mu.Unlock()
	later := o.settle(backend.Status{}, err)
`,
		why: "Cancel takes an operation out of its queue, and says later that it is complete", test: "backend/local TestInterleaveGiveUpBesideOtherEnds"},
	{file: "backend/local/fail.go",
		old: `else if later := o.settle(backend.Status{}, err); later != nil {`,
		new: `else if later := o; true {`,
		why: "the end of a communicator takes an operation out of its queue, and completes it later", test: "backend/local TestInterleaveGiveUpBesideOtherEnds"},
	{file: "backend/local/p2p.go",
		old: `		r.long = len(buf) > shortMax
`,
		new: `		r.long = true
`,
		why: "the deadline of a short message that is being copied breaks the communicator", test: "backend/local TestInterleaveDeadlineOfCopy"},
	{file: "backend/local/op.go",
		old: `	o.buf, o.status, o.err = nil, st, err`,
		new: `	o.buf, o.status, o.err = nil, st, err
	if req != nil && err != nil && o.send {
		req.Impl = nil
	}`,
		why: "a message that fails takes away the record that Cancel reads", test: "backend/local TestInterleaveCancelBesideClose"},
	{file: "backend/local/fail.go",
		old: `	if g.end.Load() != nil {
		g.arrivals.stop(never)
	}
	var told`,
		new: `	var told`,
		why: "the end of a communicator does not stop its rounds", test: "backend/local TestInterleaveEndOfCollective"},
	{file: "backend/local/survivor.go",
		old: `		g.part(rank)
`,
		new: ``,
		why: "a rank that is lost is not gone from the control communicators", test: "backend/local TestInterleaveDeathBesideDeparture"},
	{file: "backend/local/p2p.go",
		old: `	if err := c.unusable(); err != nil {
		to.mu.Unlock()
		return nil, err
	}
	if n := to.posted`,
		new: `	to.mu.Unlock()
	if err := c.unusable(); err != nil {
		return nil, err
	}
	to.mu.Lock()
	if n := to.posted`,
		why: "a send looks whether the communicator has ended outside the lock of its queue", test: "backend/local TestInterleaveEndOfMessage"},
	{file: "backend/local/collective.go",
		old: `			c.group.readers.Leave()
		}
		c.leave(err)
`,
		new: `			c.group.readers.Leave()
		}
`,
		why: "a rank whose operation ends its goroutine has its buffers back while another one reads them", test: "backend/local TestInterleaveUserOpFails"},
	{file: "backend/local/collective.go",
		old: `	if c.Break(err); exits {
`,
		new: `	if exits {
`,
		why: "a rank whose operation has failed lets the others wait", test: "backend/local TestInterleaveUserOpFails"},
}
