package main

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
)

const classes = 3

// point is where something is, and of which class.
type point struct {
	at    [2]float64
	class int
}

// read reads points: x, y, and class, a line each, after a line with these names.
func read(path string) ([]point, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w; run ddp in the repository's folder, or say --data FILE", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = 3
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) < 1+batch {
		return nil, fmt.Errorf("%s: %d lines, want the names and at least %d points", path, len(rows), batch)
	}
	var points []point
	for i, row := range rows[1:] {
		var p point
		var bad [3]error
		p.at[0], bad[0] = strconv.ParseFloat(row[0], 64)
		p.at[1], bad[1] = strconv.ParseFloat(row[1], 64)
		p.class, bad[2] = strconv.Atoi(row[2])
		if bad != [3]error{} || p.class < 0 || p.class >= classes {
			return nil, fmt.Errorf("%s:%d: %q: want two numbers and a class from 0 to %d", path, i+2, row, classes-1)
		}
		points = append(points, p)
	}
	return points, nil
}

// order deals points out in batches: all in random order, and then again in another. It is the same on
// all ranks.
type order struct {
	rng  *rand.Rand
	perm []int
	at   int
}

func newOrder(n int) *order {
	o := &order{rng: rand.New(rand.NewPCG(seed, 2))}
	o.perm = o.rng.Perm(n)
	return o
}

func (o *order) next(n int) []int {
	if o.at+n > len(o.perm) {
		o.rng.Shuffle(len(o.perm), func(i, j int) { o.perm[i], o.perm[j] = o.perm[j], o.perm[i] })
		o.at = 0
	}
	o.at += n
	return o.perm[o.at-n : o.at]
}
