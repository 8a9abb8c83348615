package mutants

// How messages end: internal/engine.
var engineMutants = []mutant{
	{file: "internal/engine/probe.go",
		old: `case got.gone || !e.takeMsg(o, got):`,
		new: `case got.gone || !e.takeMsg(o, got) && false:`,
		why: "the receive of a message that was revoked after Mprobe ends nowhere", test: "internal/engine TestInterleaveCancelAgainstMprobe"},
	{file: "internal/engine/p2p.go",
		old: `	if ended && r.Err == nil { // the receiver had taken it all
		return true
	}
`,
		new: ``,
		why: "a send that its receiver has finished returns nil and breaks the communicator", test: "internal/engine TestInterleaveDeadlineOfSend"},
	{file: "internal/engine/rendezvous.go",
		old: `				e.finish(o, backend.Status{}, backend.TookBack)
`,
		new: ``,
		why: "a receive whose sender gave up after the CTS does not end", test: "internal/engine TestInterleaveDeadlineOfSend"},
	{file: "internal/engine/p2p.go",
		old: `			p.emit(frame.Header{Kind: frame.Withdraw, Token: o.token}, nil, nil)
`,
		new: ``,
		why: "a sender that cancels does not tell the receiver", test: "internal/engine TestInterleaveCancelWithoutReceive"},
	{file: "internal/engine/p2p.go",
		old: `		if !e.peers[o.peer].mem.Revoke(&o.transfer) {
`,
		new: `		if !e.peers[o.peer].mem.Revoke(&o.transfer) && false {
`,
		why: "a message that the receiver has accepted is canceled", test: "internal/engine TestInterleaveCancelAgainst.*"},
	{file: "internal/engine/rendezvous.go",
		old: `		m.gone = m.gone || sent(m)
`,
		new: `		_ = sent(m)
`,
		why: "a message that is canceled after Mprobe is asked for", test: "internal/engine TestInterleaveCancelAgainstMprobe"},
	{file: "internal/engine/p2p.go",
		old: `		if e.takeMsg(o, n.Owner.(*msg)) {
			return
		}
`,
		new: `		e.takeMsg(o, n.Owner.(*msg))
		return
`,
		why: "a receive that finds a revoked message is posted nowhere", test: "internal/engine TestInterleaveCancelAgainstReceive"},
	{file: "internal/engine/rendezvous.go",
		old: `		e.put(o, opCopying)
`,
		new: `		o.state = opCopying
`,
		why: "a receive by transfer stays in the queue of posted receives", test: "internal/engine TestInterleaveCancelAgainstReceive"},
	{file: "internal/engine/p2p.go",
		old: `			p.emit(frame.Header{Kind: frame.Withdraw, Token: o.token}, nil, nil)
`,
		new: `			p.emit(frame.Header{Kind: frame.Withdraw, Token: o.token + 1}, nil, nil)
`,
		why: "a withdrawal names another message", test: "internal/engine TestInterleaveCancelWithoutReceive"},
	{file: "internal/engine/p2p.go",
		old: `		e.moving = slices.DeleteFunc(e.moving, func(x *op) bool { return x == o || x.pair == o })
`,
		new: ``,
		why: "a message to oneself is copied after it was given up", test: "internal/engine TestInterleaveMessageToOneself"},
	{file: "internal/engine/op.go",
		old: `s == opMoving || s == opCopying {`,
		new: `s == opMoving {`,
		why: "a rank sleeps while it has a message to copy", test: "internal/engine TestSimulationKeepsToTheModel", plain: true},
	{file: "internal/engine/burst.go",
		old: `		p.e.keeps.Unpark()
`,
		new: ``,
		why: "nobody writes a message that is kept back", test: "internal/engine TestInterleaveFlusherWritesBurst"},
	{file: "internal/engine/burst.go",
		old: `	e.flushed.Store(true)
	e.keeps.Unpark()
`,
		new: `	e.keeps.Unpark()
	e.flushed.Store(true)
`,
		why: "the goroutine that writes bursts sleeps on after Close", test: "internal/engine TestInterleaveFlusherWritesBurst"},
}
