package generation

import (
	"fmt"
	"slices"
	"time"
)

// form forms the next world if all that belong to it have asked.
func (m *Machine) form() {
	if m.over != "" || m.Generation < 0 && m.unasked > 0 {
		return
	}
	if !m.decided() {
		m.probe()
		return
	}
	all := m.active()
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
		m.set(p, joining)
		if p.began.IsZero() {
			p.began = m.Now()
		}
		p.rank, p.generation, p.lost = rank, m.Generation, nil
		m.members = append(m.members, p.id)
	}
	m.unjoined, m.failed = len(m.members), false
	for rank, id := range m.members {
		m.Host.Tell(id, Message{Place: &Place{m.Generation, rank, len(m.members), fmt.Sprintf("%s.%d", m.Job, m.Generation)}})
	}
}

// decided reports whether it is known which members of the last world belong to the next one. It takes the others out.
func (m *Machine) decided() bool {
	var members, asked []*process
	for _, p := range m.active() {
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
	silent := false
	for _, p := range members {
		if p.state != asking {
			if silent = true; !lost[p.id] || p.state != member {
				m.doubted = time.Time{}
				return false
			}
		}
	}
	switch {
	case !silent:
	case m.doubted.IsZero():
		m.doubted = m.Now().Add(doubt)
		if 2*len(asked) <= len(members) {
			m.doubted = m.Now().Add(patience)
		}
		return false
	case m.Now().Before(m.doubted):
		return false
	}
	m.doubted = time.Time{}
	stay := side(asked)
	for _, p := range members {
		if !slices.Contains(stay, p) && !m.expel(p) {
			return false
		}
	}
	return true
}

// probe asks the members that others wait for whether they live. One that has stopped does not answer, and nobody may be
// left to count it as lost: the others may have ended, and those in their places know nothing of it.
func (m *Machine) probe() {
	all := m.active()
	waiting := slices.ContainsFunc(all, func(p *process) bool { return p.state == asking })
	for _, p := range all {
		switch {
		case p.state != member:
		case !waiting:
			p.heard, p.silent = time.Time{}, time.Time{}
		case p.heard.IsZero():
			p.heard = m.Now()
		case p.silent.IsZero() && m.past(p.heard.Add(patience)):
			p.silent = m.Now().Add(patience)
			m.Host.Tell(p.id, Message{Alive: true})
		}
	}
}

// announce tells the members that the job is to have another size, once its new processes have asked.
func (m *Machine) announce(members []*process) {
	size := len(m.world.ids)
	if !m.scaled || m.resizing || size == 0 || m.want == size || m.unjoined > 0 || m.due() > 0 {
		return
	}
	if slices.ContainsFunc(m.active(), func(p *process) bool { return p.generation < 0 && p.state != asking }) {
		return
	}
	m.resizing = true
	for _, p := range members {
		m.Host.Tell(p.id, Message{Resize: true})
	}
}

// side returns the processes that go on: while some count each other as lost, the one that is apart from most others is
// taken out; of several, the one with the highest rank.
func side(asked []*process) []*process {
	stay := slices.Clone(asked)
	for {
		worst, most := 0, 0
		for i, p := range stay {
			apart := 0
			for _, q := range stay {
				if p.lost[q.id] || q.lost[p.id] {
					apart++
				}
			}
			if apart > 0 && apart >= most {
				worst, most = i, apart
			}
		}
		if most == 0 {
			return stay
		}
		stay = slices.Delete(stay, worst, worst+1)
	}
}
