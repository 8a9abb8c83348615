package libmpi

//go:generate go run ./gen
