package mutants

// Membership: internal/membership, and how the engine uses it.
var membershipMutants = []mutant{
	{file: "internal/membership/machine.go",
		old: `	if m.Parted() {
		m.host.Send(r, Notice{Kind: Goodbye, Hub: m.asHub})
	}
	if m.Hub == m.Me {`,
		new: `	if m.Hub == m.Me {`,
		why: "a rank that leaves says no goodbye on a link that comes later", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `	case p.Standing == Reported:
		m.noteLeftUnheard(r)
`,
		new: ``,
		why: "a rank that was reported is lost if its link ends before its goodbye", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `		case !p.Acked:`,
		new: `		case true:`,
		why: "a rank that has acknowledged a goodbye is lost when its link ends", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `	case p.Standing == Left: // it waits for an acknowledgement
`,
		new: `	case p.Standing == Left:
		return false, nil
`,
		why: "a rank that has left gets no acknowledgement on its next link", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `m.Hub == m.Me && m.all(func(p *Peer) bool { return p.Acked })`,
		new: `m.Hub == m.Me`,
		why: "the hub leaves without the acknowledgements of the others", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `if p.Standing = Reported; !p.Linked() {`,
		new: `if p.Standing = Reported; true {`,
		why: "a rank has left before its last messages are read", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `		p.Link = Wanted
		if p.failed++;`,
		new: `		p.Link = None
		if p.failed++;`,
		why: "a link that ended unconfirmed is not made again", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `p.Standing == Left && p.Linked() && !m.Parted() {`,
		new: `false {`,
		why: "a new hub promises nothing to ranks whose goodbye it has acknowledged before", test: "internal/membership TestMembershipHoldsInRandomOrders", plain: true},
	{file: "internal/membership/machine.go",
		old: `case m.Parted() && m.promise < 0:`,
		new: `case false:`,
		why: "a rank whose link ends before it has the hub's promise does not ask again", test: "internal/membership TestMembershipHoldsInRandomOrders", plain: true},
	{file: "internal/membership/machine.go",
		old: `p.asHub = p.asHub || hub`,
		new: `p.asHub = p.asHub || r == m.Hub`,
		why: "who was the hub at its goodbye is judged by the view of another rank", test: "internal/membership TestOrdersThatWereWrong", plain: true},
	{file: "internal/membership/machine.go",
		old: `p.asHub || r == from`,
		new: `p.asHub`,
		why: "a rank tells of a hub that has said in a refused link that it has left", test: "internal/membership TestOrdersThatWereWrong", plain: true},
	{file: "internal/membership/machine.go",
		old: `max(m.promise, from)`,
		new: `from`,
		why: "an older promise takes the place of a later one", test: "internal/membership TestOlderPromiseIsReadLater", plain: true},
	{file: "internal/membership/machine.go",
		old: `n.Hub && m.Peers[from].Standing != Lost {`,
		new: `n.Hub {`,
		why: "the promise of a lost hub counts", test: "internal/membership TestLostHubPromisesNothing", plain: true},
	{file: "internal/membership/machine.go",
		old: `	if p := m.Peers[r]; p.Standing == Left && !m.Closed() {
		m.host.Ask(r, false)
	} else {
		m.Need(r)
	}`,
		new: `	m.Need(r)`,
		why: "a rank that has left asks for a link and gets none", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/peer.go",
		old: `p.Standing == Left && by == ThisRank {`,
		new: `p.Standing == Left {`,
		why: "a goodbye hides a loss that another rank reports", test: "internal/membership TestMembershipHoldsInEveryOrder", plain: true},
	{file: "internal/membership/machine.go",
		old: `m.Hub == m.Me && !m.Parted() && r > m.Me }`,
		new: `m.Hub == m.Me }`,
		why: "a hub that has said goodbye promises to tell of others, which take no links of it", test: "internal/membership TestMembershipHoldsInRandomOrders", plain: true},
	{file: "internal/membership/machine.go",
		old: `p.Standing == Left && !p.asHub {`,
		new: `p.Standing == Left {`,
		why: "a rank tells of a hub that has left, which has yet to tell others", test: "internal/membership TestMembershipHoldsInRandomOrders", plain: true},
	{file: "internal/membership/machine.go",
		old: `	if deaf && m.Parted() {`,
		new: `	if deaf && false {`,
		why: "a rank that leaves waits for one that has ended", test: "internal/membership TestMembershipHoldsInRandomOrders", plain: true},
	{file: "internal/membership/machine.go",
		old: `; n.Hub && m.Peers`,
		new: `; m.Peers`,
		why: "a rank ends on the acknowledgement of a rank that is not the hub", test: "internal/membership TestOrdersThatWereWrong", plain: true},
	{file: "internal/engine/loss.go",
		old: `if e.excluded = true; e.fault.Load() == nil {`,
		new: `if e.excluded = true; false {`,
		why: "a rank that is lost tells nobody", test: "internal/engine TestRankThatIsLostTellsOthers", plain: true},
	{file: "internal/engine/lock.go",
		old: `l.e.uncorks != uncorks {`,
		new: `uncorks < 0 {`,
		why: "a frame that a Notify function keeps back waits for another goroutine", test: "internal/engine TestFrameKeptBackByNotifyIsWritten", plain: true},
	{file: "internal/engine/hub.go",
		old: `n.Kind == membership.Goodbye && p.state.Link == membership.Fresh`,
		new: `false`,
		why: "a goodbye waits for the link to be confirmed", test: "internal/engine TestRankThatLeavesWhileLinkComesIsNotLost", plain: true},
	{file: "internal/engine/peer.go",
		old: `	p.link, p.writeErr = l, nil
`,
		new: `	p.link, p.writeErr = l, nil
	p.confirmed()
`,
		why: "tokens are made on a link that is not confirmed", test: "internal/engine TestMessagesQueuedForLinkThatEndsGoOverNext", plain: true},
	{file: "internal/engine/heartbeat.go",
		old: `|| e.membership.Parted() {`,
		new: `{`,
		why: "a rank that leaves loses others for silence", test: "internal/engine TestRankThatLeavesLosesNobodyForSilence", plain: true},
	{file: "internal/engine/heartbeat.go",
		old: `		p.quiet = 0
		e.membership.Answered(p.rank)
`,
		new: `		_ = p
`,
		why: "a rank of the node is lost for silence though its process runs", test: "internal/engine TestRankOfNodeThatRunsIsNotLostForSilence", plain: true},
	{file: "internal/job/machine.go",
		old: `	case e.Follows && !m.Decided:`,
		new: `	case e.Follows && !m.Decided && m.first != nil:`,
		why: "a rank that failed because of another one is blamed", test: "internal/job TestRankThatOthersFollowGivesJobItsStatus", plain: true},
	{file: "internal/job/machine.go",
		old: `		if m.first == nil {
			m.first = &e
			m.after(follow, followLimit)
		}`,
		new: `		if m.first = &e; m.due[follow].IsZero() {
			m.after(follow, followLimit)
		}`,
		why: "of the ranks that failed because of one that does not end, the last is blamed", test: "internal/job TestRankThatOthersFollowGivesJobItsStatus", plain: true},
}
