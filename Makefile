# make test checks everything, and installs what that needs where it may; scripts/check STEP runs one
# step of it. make bench compares with the C MPI libraries that are installed.

.PHONY: all test bench setup clean

all:
	go build -o bin/ ./cmd/...

test:
	@scripts/check

bench:
	@go run ./bench

setup:
	@scripts/setup || [ $$? = 3 ]

clean:
	rm -rf bin out
