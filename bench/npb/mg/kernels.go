package main

// Each operator of the report is a stencil of 27 points. Its four coefficients apply to a point itself, and to the
// neighbors that differ from it in one, two and three coordinates. A coefficient that is 0 has no term below.
type coefficients [4]float64

// around is a row of a grid, and sums of others, for the stencils of its points. With the rows named by their z and y
// relative to it, the stencil needs the sum "edge" of the four rows (0,±1) and (±1,0), and "corner" of (±1,±1). Sums of
// (-1,y) and (1,y) serve three rows after each other. A Go compiler makes no vector instructions: these sums save
// a third of the loads, which limit the speed of such loops.
type around struct {
	x, before, after   []float64 // rows (0,0), (0,-1), (0,1)
	below, above       []float64 // rows (-1,1), (1,1)
	sum0, sum1, sumNew []float64 // of (-1,y) and (1,y), for y of -1 and 0; a stencil computes that for 1
}

// sweep calls do for every row of g.
func (g *grid) sweep(do func(z, y int, a *around)) {
	var a around
	for z := 1; z <= g.nz; z++ {
		a.sum0, a.sum1, a.sumNew = g.sums[0], g.sums[1], g.sums[2]
		add(a.sum0, g.row(z-1, 0), g.row(z+1, 0))
		add(a.sum1, g.row(z-1, 1), g.row(z+1, 1))
		for y := 1; y <= g.ny; y++ {
			a.x, a.before, a.after = g.row(z, y), g.row(z, y-1), g.row(z, y+1)
			a.below, a.above = g.row(z-1, y+1), g.row(z+1, y+1)
			do(z, y, &a)
			a.sum0, a.sum1, a.sumNew = a.sum1, a.sumNew, a.sum0
		}
	}
}

// add sets sum to a + b.
func add(sum, a, b []float64) {
	a, b = a[:len(sum)], b[:len(sum)]
	for i := range sum {
		sum[i] = a[i] + b[i]
	}
}

// residual computes r = v - A u. The second coefficient of A is 0.
func residual(r, v, u *grid, a *coefficients) error {
	u.sweep(func(z, y int, u *around) { residualRow(r.row(z, y), v.row(z, y), u, a) })
	return r.fillHalo()
}

func residualRow(r, v []float64, a *around, c *coefficients) {
	n := len(r)
	v, x, before, after, below, above := v[:n], a.x[:n], a.before[:n], a.after[:n], a.below[:n], a.above[:n]
	sum0, sum1, sumNew := a.sum0[:n], a.sum1[:n], a.sumNew[:n]
	c0, c2, c3 := c[0], c[2], c[3]
	sumNew[0], sumNew[1] = below[0]+above[0], below[1]+above[1]
	edge0, corner0 := before[0]+after[0]+sum1[0], sum0[0]+sumNew[0]
	edge1, corner1 := before[1]+after[1]+sum1[1], sum0[1]+sumNew[1]
	for i := 2; i < n; i++ {
		s := below[i] + above[i]
		sumNew[i] = s
		edge2, corner2 := before[i]+after[i]+sum1[i], sum0[i]+s
		r[i-1] = v[i-1] - c0*x[i-1] - c2*(corner1+edge0+edge2) - c3*(corner0+corner2)
		edge0, edge1, corner0, corner1 = edge1, edge2, corner1, corner2
	}
}

// smooth computes u = u + S r. The last coefficient of S is 0.
func smooth(u, r *grid, s *coefficients) error {
	r.sweep(func(z, y int, r *around) { smoothRow(u.row(z, y), r, s) })
	return u.fillHalo()
}

func smoothRow(u []float64, a *around, c *coefficients) {
	n := len(u)
	x, before, after, below, above := a.x[:n], a.before[:n], a.after[:n], a.below[:n], a.above[:n]
	sum0, sum1, sumNew := a.sum0[:n], a.sum1[:n], a.sumNew[:n]
	c0, c1, c2 := c[0], c[1], c[2]
	sumNew[0], sumNew[1] = below[0]+above[0], below[1]+above[1]
	edge0, edge1, corner1 := before[0]+after[0]+sum1[0], before[1]+after[1]+sum1[1], sum0[1]+sumNew[1]
	x0, x1 := x[0], x[1]
	for i := 2; i < n; i++ {
		s := below[i] + above[i]
		sumNew[i] = s
		edge2, x2 := before[i]+after[i]+sum1[i], x[i]
		u[i-1] += c0*x1 + c1*(x0+x2+edge1) + c2*(edge0+edge2+corner1)
		x0, x1, edge0, edge1, corner1 = x1, x2, edge1, edge2, sum0[i]+s
	}
}

// project computes coarse = P fine: point i of coarse lies on point 2i of fine, and P has the coefficients 1/2, 1/4, 1/8
// and 1/16.
func project(coarse, fine *grid) {
	for z := 1; z <= coarse.nz; z++ {
		for y := 1; y <= coarse.ny; y++ {
			at := func(dz, dy int) []float64 { return fine.row(2*z+dz, 2*y+dy) }
			projectRow(coarse.row(z, y), at(0, 0), at(-1, 0), at(1, 0), at(0, -1), at(0, 1), at(-1, -1), at(-1, 1), at(1, -1), at(1, 1))
		}
	}
}

func projectRow(coarse, x, e1, e2, e3, e4, c1, c2, c3, c4 []float64) {
	n := len(x)
	e1, e2, e3, e4, c1, c2, c3, c4 = e1[:n], e2[:n], e3[:n], e4[:n], c1[:n], c2[:n], c3[:n], c4[:n]
	edge0, corner0 := e1[1]+e2[1]+e3[1]+e4[1], c1[1]+c2[1]+c3[1]+c4[1]
	coarse = coarse[1:]
	for i := 3; i < n; i += 2 {
		edge1, corner1 := e1[i-1]+e2[i-1]+e3[i-1]+e4[i-1], c1[i-1]+c2[i-1]+c3[i-1]+c4[i-1]
		edge2, corner2 := e1[i]+e2[i]+e3[i]+e4[i], c1[i]+c2[i]+c3[i]+c4[i]
		coarse[0] = x[i-1]/2 + (x[i-2]+x[i]+edge1)/4 + (edge0+edge2+corner1)/8 + (corner0+corner2)/16
		coarse, edge0, corner0 = coarse[1:], edge2, corner2
	}
}

// interpolate computes fine = fine + Q coarse: each point of fine gets the mean of the points of coarse that are next to
// it. The halo of fine is right afterwards if it was before.
func interpolate(fine, coarse *grid) {
	corners := fine.sums[0][:coarse.nx+2] // sums of rows of coarse
	for z := range coarse.nz + 1 {
		for y := range coarse.ny + 1 {
			x00, x01, x10, x11 := coarse.row(z, y), coarse.row(z, y+1), coarse.row(z+1, y), coarse.row(z+1, y+1)
			interpolateRow(fine.row(2*z, 2*y), x00, 1)
			add(corners, x00, x01)
			interpolateRow(fine.row(2*z, 2*y+1), corners, 0.5)
			add(corners, x00, x10)
			interpolateRow(fine.row(2*z+1, 2*y), corners, 0.5)
			add(corners, corners, x01)
			add(corners, corners, x11)
			interpolateRow(fine.row(2*z+1, 2*y+1), corners, 0.25)
		}
	}
}

func interpolateRow(fine, x []float64, factor float64) {
	left := factor * x[0]
	for _, v := range x[1:] {
		right := factor * v
		fine[0] += left
		fine[1] += (left + right) / 2
		fine, left = fine[2:], right
	}
}
