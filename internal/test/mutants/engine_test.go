package mutants

// How messages end: internal/engine.
var engineMutants = []mutant{
	{file: "internal/engine/probe.go",
		old: `case got.gone || !e.takeMsg(o, got):`,
		new: `case got.gone || !e.takeMsg(o, got) && false:`,
		why: "the receive of a message that was revoked after Mprobe ends nowhere", test: "internal/engine TestInterleaveCancelAgainstMprobe"},
	{file: "internal/engine/probe.go",
		old: `	return c.statusOf(n), true
`,
		new: `	c.e.overtake(n.Env, c.e.stamp())
	return c.statusOf(n), true
`,
		why: "the text of an error takes a message away from a receive", test: "internal/engine TestProbeOvertakesAndLookDoesNot", plain: true},
	{file: "internal/engine/p2p.go",
		old: `	if ended && r.Err == nil { // the receiver had taken it all
		return true
	}
`,
		new: ``,
		why: "a send that its receiver has finished returns nil and breaks the communicator", test: "internal/engine TestInterleaveDeadlineOfSend"},
	{file: "internal/engine/rendezvous.go",
		old: `				e.repost(o)
`,
		new: `				e.put(o, opIdle)
`,
		why: "a receive whose sender gave up after the CTS is not posted again", test: "internal/engine TestInterleaveDeadlineOfSend"},
	{file: "internal/engine/rendezvous.go",
		old: `		if !e.taking.Remove(&o.node) || e.arriving(o) {
`,
		new: `		if !e.taking.Remove(&o.node) && false {
`,
		why: "a receive is posted again that a later message has overtaken", test: "internal/engine TestReceiveThatIsOvertakenIsNotPostedAgain", plain: true},
	{file: "internal/engine/peer.go",
		old: `			e.came(o, env, size, copy(o.buf, m.buf))
`,
		new: `			e.received(o, env, size, copy(o.buf, m.buf))
`,
		why: "a receive that is posted while its message comes overtakes nothing", test: "internal/engine TestReceiveThatIsPostedWhileItsMessageComesOvertakes", plain: true},
	{file: "internal/engine/rendezvous.go",
		old: ` || e.arriving(o) {
`,
		new: ` {
`,
		why: "a receive is posted again while the message that overtakes it is arriving", test: "internal/engine TestReceiveThatIsCanceledHasOvertakenNothing", plain: true},
	{file: "internal/engine/rendezvous.go",
		old: `	e.taking.Insert(&o.node)
	p.emit(`,
		new: `	e.taking.Insert(&o.node)
	e.overtake(o.env, o.node.Order)
	p.emit(`,
		why: "a receive that has asked for a message has overtaken those before it", test: "internal/engine TestInterleaveDeadlineOfTwoSends"},
	{file: "internal/engine/rendezvous.go",
		old: `		e.slots[uint32(o.token)].op, e.slots[uint32(next.token)].op = o, next
`,
		new: ``,
		why: "the data for a receive go to another one after the two have changed their messages", test: "internal/engine TestInterleaveDeadlineOfTwoSends"},
	{file: "internal/engine/rendezvous.go",
		old: `		if e.takeArrived(o, next.came) {
`,
		new: `		if false {
`,
		why: "a receive gets a message that came later than another one for it", test: "internal/engine TestReceiveGetsFirstMessageSinceThatGivenUp", plain: true},
	{file: "internal/engine/rendezvous.go",
		old: `		if next.size > min(next.n, len(o.buf)) {`,
		new: `		if next.size > len(o.buf) {`,
		why: "a receive gets the data for another one with less room", test: "internal/engine TestReceiveGetsMessageThatLaterReceiveHasAskedFor", plain: true},
	{file: "internal/engine/rendezvous.go",
		old: `		e.overtake(o.env, o.node.Order)
`,
		new: ``,
		why: "a message that comes in frames overtakes nothing", test: "internal/engine TestReceiveIsOvertakenByDataOfOneBehind", plain: true},
	{file: "internal/engine/rendezvous.go",
		old: `n != nil && n.Order < by;`,
		new: `n != nil;`,
		why: "a receive overtakes one that was posted after it", test: "internal/engine TestReceiveIsOvertakenByDataOfOneBehind", plain: true},
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
		old: `	for o.cause == nil {
`,
		new: `	for {
`,
		why: "the receive of a message that Mprobe took and its sender canceled waits for another message", test: "internal/engine TestInterleaveCancelAgainstMprobe"},
	{file: "internal/engine/p2p.go",
		old: `	case opTaking:
		o.cause = err
`,
		new: `	case opTaking:
`,
		why: "a receive that is canceled waits for another message when its sender withdraws this one", test: "internal/engine TestInterleaveCancelOfBothEnds"},
	{file: "internal/engine/rendezvous.go",
		old: `		m.gone = m.gone || sent(m)
`,
		new: `		_ = sent(m)
`,
		why: "a message that is canceled after Mprobe is asked for", test: "internal/engine TestInterleaveCancelAgainstMprobe"},
	{file: "internal/engine/p2p.go",
		old: `		if e.takeMsg(o, n.Owner.(*msg)) {
			return true
		}
`,
		new: `		e.takeMsg(o, n.Owner.(*msg))
		return true
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
