package main

import (
	"math/bits"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// sorter has a rank's block of the keys and, after an iteration, the ranks of all keys in its part of their range.
//
// The upper bits of a key are its bucket, the others its digit. Each bucket belongs to one rank. Ranks exchange
// digits only, because they know how many keys every rank has in every bucket.
type sorter struct {
	world *cohort.Comm
	clock *npb.Clock
	p     problem
	shift int     // bits of a digit
	first int     // index of keys[0] among all keys
	keys  []int32 // of this rank
	right int     // published ranks that this rank has found

	table    []row    // of all ranks
	begin    []int    // first bucket of each rank, and the number of buckets
	digits   []uint16 // of this rank's keys, by bucket
	received []uint16 // of other ranks' keys in this rank's buckets, by rank and by bucket
	below    int      // keys in the buckets of lower ranks
	smaller  []int32  // for each key in this rank's buckets how many smaller keys there are
}

// row is what all ranks know of one rank: how many keys it has in each bucket, and its keys at the published indices,
// or -1.
type row struct {
	count [buckets]int32
	keys  [published]int32
}

// buckets is the largest number of buckets.
const buckets = 1 << 10

// newSorter makes this rank's keys. A key is the sum of four random numbers.
//
// There are 16 buckets a rank, so that ranks get about as many keys, at least 64, and as many as leave 16 bits for a
// digit. On an Intel Xeon grouping by 64 buckets takes half the time of 128: the processor fetches memory ahead for
// few streams only.
func newSorter(world *cohort.Comm, p problem, clock *npb.Clock) *sorter {
	lo, hi := cohort.Block(1<<p.keys, world.Size(), world.Rank())
	s := &sorter{
		world: world, clock: clock, p: p, first: lo,
		shift: p.bits - min(10, max(6, p.bits-16, 4+bits.Len(uint(world.Size()-1)))),
		keys:  make([]int32, hi-lo), digits: make([]uint16, hi-lo),
		table: make([]row, world.Size()), begin: make([]int, world.Size()+1),
	}
	random := npb.Seed
	random.Skip(4 * uint64(lo))
	quarter := float64(int(1) << p.bits / 4)
	for i := range s.keys {
		s.keys[i] = int32(quarter * (random.Next() + random.Next() + random.Next() + random.Next()))
	}
	return s
}

// iterate changes two keys and finds the ranks of all.
func (s *sorter) iterate(iteration int) error {
	s.set(iteration, int32(iteration))
	s.set(iteration+iterations, int32(1<<s.p.bits-iteration))
	s.count()
	if err := s.share(); err != nil {
		return err
	}
	s.divide()
	s.group()
	if err := s.exchange(); err != nil {
		return err
	}
	s.rank()
	s.check(iteration)
	return nil
}

// set changes the key at an index, if this rank has it.
func (s *sorter) set(index int, key int32) {
	if i := index - s.first; i >= 0 && i < len(s.keys) {
		s.keys[i] = key
	}
}

// count fills this rank's row of the table.
func (s *sorter) count() {
	mine, shift := &s.table[s.world.Rank()], s.shift&31
	clear(mine.count[:])
	for _, key := range s.keys {
		mine.count[key>>shift&(buckets-1)]++
	}
	for j, index := range s.p.index {
		mine.keys[j] = -1
		if i := index - s.first; i >= 0 && i < len(s.keys) {
			mine.keys[j] = s.keys[i]
		}
	}
}

// share makes the table known to all ranks.
func (s *sorter) share() error {
	defer s.clock.Communication(time.Now())
	return cohort.Allgather(s.world, s.table, s.table)
}

// divide gives each rank successive buckets with about as many keys.
func (s *sorter) divide() {
	rank, n := 0, 0
	for bucket := range 1 << s.p.bits >> s.shift {
		next := n
		for r := range s.table {
			next += int(s.table[r].count[bucket])
		}
		for ; rank <= (n+next)/2*s.world.Size()>>s.p.keys; rank++ {
			s.begin[rank] = bucket
			if rank == s.world.Rank() {
				s.below = n
			}
		}
		n = next
	}
	for ; rank <= s.world.Size(); rank++ {
		s.begin[rank] = 1 << s.p.bits >> s.shift
	}
}

// group sorts the digits of this rank's keys by bucket.
func (s *sorter) group() {
	var at [buckets]int32
	n := int32(0)
	for bucket, count := range s.table[s.world.Rank()].count {
		at[bucket] = n
		n += count
	}
	shift, mask, digits := s.shift&31, uint16(1<<s.shift-1), s.digits
	for _, key := range s.keys {
		i := &at[key>>shift&(buckets-1)]
		digits[*i] = uint16(key) & mask
		*i++
	}
}

// counted returns how many keys one rank has in the buckets of another.
func (s *sorter) counted(of, in int) (n int) {
	for _, count := range s.table[of].count[s.begin[in]:s.begin[in+1]] {
		n += int(count)
	}
	return n
}

// exchange sends digits to the ranks that have their buckets. Those of this rank's own buckets stay in place.
func (s *sorter) exchange() error {
	size, me := s.world.Size(), s.world.Rank()
	scounts, sdispls, rcounts, rdispls := make([]int, size), make([]int, size), make([]int, size), make([]int, size)
	sent, received := 0, 0
	for r := range size {
		sdispls[r], rdispls[r] = sent, received
		sent += s.counted(me, r)
		if r != me {
			scounts[r], rcounts[r] = s.counted(me, r), s.counted(r, me)
			received += rcounts[r]
		}
	}
	if cap(s.received) < received {
		s.received = make([]uint16, received+received/8)
	}
	defer s.clock.Communication(time.Now())
	return cohort.Alltoallv(s.world, s.digits, scounts, sdispls, s.received, rcounts, rdispls)
}

// parts yields the digits in each of this rank's buckets, in one part for each rank, without empty parts.
func (s *sorter) parts() func(yield func(bucket int, digits []uint16) bool) {
	return func(yield func(int, []uint16) bool) {
		me, received := s.world.Rank(), s.received
		rest := make([][]uint16, s.world.Size()) // of each rank
		for r := range rest {
			n := s.counted(r, me)
			if r == me {
				skip := 0
				for lower := range me {
					skip += s.counted(me, lower)
				}
				rest[r] = s.digits[skip : skip+n]
			} else {
				rest[r], received = received[:n], received[n:]
			}
		}
		for bucket := s.begin[me]; bucket < s.begin[me+1]; bucket++ {
			for r := range rest {
				n := s.table[r].count[bucket]
				if n > 0 && !yield(bucket, rest[r][:n]) {
					return
				}
				rest[r] = rest[r][n:]
			}
		}
	}
}

// rank counts the keys in this rank's buckets, and adds the counts up.
func (s *sorter) rank() {
	me, shift := s.world.Rank(), s.shift
	n := (s.begin[me+1] - s.begin[me]) << shift
	if cap(s.smaller) < n {
		s.smaller = make([]int32, n+n/8)
	}
	s.smaller = s.smaller[:n]
	clear(s.smaller)
	for bucket, digits := range s.parts() {
		count := s.smaller[(bucket-s.begin[me])<<shift:][:1<<shift]
		for _, digit := range digits {
			count[digit]++
		}
	}
	sum := int32(s.below)
	for i, count := range s.smaller {
		s.smaller[i] = sum
		sum += count
	}
}

// check counts the published ranks that this rank has found.
func (s *sorter) check(iteration int) {
	lowest := s.begin[s.world.Rank()] << s.shift
	for j := range published {
		key := int32(-1)
		for r := range s.table {
			key = max(key, s.table[r].keys[j])
		}
		if i := int(key) - lowest; i >= 0 && i < len(s.smaller) && int(s.smaller[i]) == s.p.ranks[j]+iteration*s.p.step[j] {
			s.right++
		}
	}
}

// sort puts every key in this rank's buckets to its place by its rank, and returns them in this order.
func (s *sorter) sort() []int32 {
	n := 0
	for r := range s.table {
		n += s.counted(r, s.world.Rank())
	}
	sorted, lowest := make([]int32, n), s.begin[s.world.Rank()]<<s.shift
	for bucket, digits := range s.parts() {
		for _, digit := range digits {
			key := bucket<<s.shift + int(digit)
			sorted[int(s.smaller[key-lowest])-s.below] = int32(key)
			s.smaller[key-lowest]++
		}
	}
	return sorted
}
