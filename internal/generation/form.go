package generation

import (
	"fmt"
	"slices"
	"time"
)

// form forms the next world if all that belong to it have asked.
func (m *Machine) form() {
	if m.over != "" || m.Generation < 0 && m.unasked > 0 || !m.decided() {
		return
	}
	all := m.seated()
	if m.due() > 0 || slices.ContainsFunc(all, func(p *process) bool { return p.state != asking }) {
		return
	}
	m.want, m.resizing = min(len(all), m.want), false
	m.Generation++
	m.members = nil
	for rank, p := range all { // without a gap, each keeps its rank
		if rank >= m.want {
			m.dismiss(p)
			continue
		}
		m.set(p, member)
		if p.generation < 0 {
			p.began = m.Now()
		}
		p.rank, p.generation, p.lost = rank, m.Generation, nil
		m.members = append(m.members, p.id)
	}
	for rank, id := range m.members {
		m.Host.Tell(id, Message{Place: &Place{m.Generation, rank, len(m.members), fmt.Sprintf("%s.%d", m.Job, m.Generation)}})
	}
}

// decided reports whether it is known which members of the present world belong to the next one. It takes the others out.
func (m *Machine) decided() bool {
	var members, asked []*process
	for _, p := range m.seated() {
		if p.generation < 0 {
			continue
		}
		if members = append(members, p); p.state == asking {
			asked = append(asked, p)
		}
	}
	if len(asked) == 0 {
		m.doubted = time.Time{}
		m.announce(members)
		return len(members) == 0
	}
	lost := make(map[int]bool)
	for _, p := range asked {
		for id := range p.lost {
			lost[id] = true
		}
	}
	doubted := false
	for _, p := range members {
		if p.state != asking {
			if doubted = true; !lost[p.id] {
				m.doubted = time.Time{}
				return false
			}
		}
	}
	switch {
	case !doubted:
		m.doubted = time.Time{}
	case m.doubted.IsZero():
		m.doubted = m.Now()
		return false
	case m.Now().Sub(m.doubted) < doubt:
		return false
	}
	stay := side(asked)
	for _, p := range members {
		if slices.Contains(stay, p) {
			continue
		}
		told := p.state == asking
		if m.set(p, out); told {
			m.Host.Tell(p.id, m.whyOut(p))
		} else {
			m.Host.Kill(p.id)
		}
		if m.replace(p, false) == Decides {
			m.Host.Fail(m.over)
			return false
		}
	}
	return true
}

// announce tells the members that the job is to have another size, once the processes for its new ranks have asked.
func (m *Machine) announce(members []*process) {
	if m.resizing || m.Generation < 0 || m.want == len(m.members) {
		return
	}
	for rank := len(m.members); rank < m.want; rank++ {
		if !slices.ContainsFunc(m.seated(), func(p *process) bool { return p.rank == rank && p.state == asking }) {
			return
		}
	}
	m.resizing = true
	for _, p := range members {
		m.Host.Tell(p.id, Message{Resize: true})
	}
}

// side returns the largest set of processes in which nobody counts another as lost; of several, that with the lowest rank. They
// come in the order of their ranks.
func side(asked []*process) (most []*process) {
	apart := func(p, q *process) bool { return p.lost[q.id] && q.joined || q.lost[p.id] && p.joined }
	for i := range asked {
		if len(asked)-i <= len(most) {
			break
		}
		var s []*process
		for _, p := range asked[i:] {
			if !slices.ContainsFunc(s, func(q *process) bool { return apart(p, q) }) {
				s = append(s, p)
			}
		}
		if len(s) > len(most) {
			most = s
		}
	}
	return most
}
