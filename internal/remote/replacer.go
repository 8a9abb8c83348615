//go:build unix

package remote

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
)

// A replacer is the generation.Host of a job on hosts: it has their agents start processes in place of lost ones.
type replacer struct{ *judge }

// Start starts a process for a rank: on the host of the last one if that has room, or else on the host with the fewest.
func (s replacer) Start(id, rank int) {
	if s.elastic.Ending() {
		return
	}
	s.elastic.Started(rank)
	taken := s.taken()
	h := s.hostOf[rank]
	if h == nil || !h.room(taken[h]) {
		if h = s.least(taken); h == nil {
			s.noRoom = fmt.Sprintf("rank %d cannot be started: no host has room for it", rank)
			return
		}
	}
	s.hostOf[rank], h.running[id] = h, true
	s.m.Running++
	h.link.send(message{Kind: kindStart, ID: id, N: rank})
}

// taken returns how many ranks each host has, with those that are to be started again there.
func (s replacer) taken() map[*host]int {
	taken := map[*host]int{}
	for _, h := range s.hosts {
		for id := range h.running {
			if s.elastic.Active(id) {
				taken[h]++
			}
		}
	}
	for rank, h := range s.hostOf {
		if s.elastic.Due(rank) {
			taken[h]++
		}
	}
	return taken
}

// room reports whether a host with some ranks may have another.
func (h *host) room(taken int) bool { return h.state != hostLost && (h.Slots == 0 || taken < h.Slots) }

// least returns the host with the fewest ranks of those that may have another, nil for none.
func (s replacer) least(taken map[*host]int) (least *host) {
	for _, h := range s.hosts {
		if h.room(taken[h]) && (least == nil || taken[h] < taken[least]) {
			least = h
		}
	}
	return least
}

// fits returns an error if the hosts have no room for the processes that another size takes.
func (s replacer) fits(ranks int) error {
	lacks, free := len(s.elastic.Lacks(ranks)), 0
	taken := s.taken()
	for _, h := range s.hosts {
		switch {
		case h.state != hostLost && h.Slots == 0:
			return nil
		case h.state != hostLost:
			free += h.Slots
		}
		free -= taken[h]
	}
	if free = max(free, 0); lacks <= free {
		return nil
	}
	return fmt.Errorf("%d ranks need %s more, but the hosts have %d free; ask for fewer ranks, or start the job with more slots (HOST:N)",
		ranks, job.Count(lacks, "slot"), free)
}

// at calls f for the host on which a process runs.
func (s replacer) at(id int, f func(*host)) {
	for _, h := range s.hosts {
		if h.running[id] {
			f(h)
		}
	}
}

// Kill ends a process that has not asked for a place in time.
func (s replacer) Kill(id int) {
	s.at(id, func(h *host) { h.link.send(message{Kind: kindKill, ID: id}) })
}

// Tell sends a message to a process.
func (s replacer) Tell(id int, m generation.Message) {
	s.at(id, func(h *host) {
		if m.Place != nil {
			s.hostOf[m.Place.Rank] = h // the ranks of a world may have other numbers than those of the last one
		}
		h.link.send(message{Kind: kindTell, ID: id, Tell: &m})
	})
}

// Fail ends the job.
func (s replacer) Fail(text string) { s.m.End(1, errors.New(text), text) }

// settle is called after every event.
func (s *judge) settle() {
	if s.elastic == nil {
		return
	}
	if s.noRoom != "" { // after the message about the loss
		s.m.End(job.StatusLost, errors.New(s.noRoom), s.noRoom)
	}
	s.elastic.Settle()
	if s.m.Running == 0 && !s.saidLast {
		s.saidLast = true
		s.sendAll(kindLast)
	}
}

func (s *judge) scale(ranks int) (err error) {
	called := make(chan struct{})
	select {
	case s.asked <- func() {
		if err = (replacer{s}).fits(ranks); err == nil {
			err = s.elastic.Scale(ranks)
		}
		close(called)
	}:
		<-called
		return err
	case <-s.done:
		return errors.New("the job is ending")
	}
}

// rank returns the rank of a process that runs.
func (s *judge) rank(id int) int {
	if s.elastic == nil {
		return id
	}
	return s.elastic.Rank(id)
}

// has reports whether a host may have a rank.
func (s *judge) has(h *host, rank int) bool {
	if s.elastic != nil {
		return rank >= 0 && rank < s.most()
	}
	return rank >= h.first && rank < h.first+h.count
}
