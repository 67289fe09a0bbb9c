// Command abuse sends a running monopod whatever a client could send, over real connections and as several
// users: all verbs, odd paths, hostile and truncated bodies, slow ones, watches and streams that are opened and
// dropped. At the end it compares the idle server's resources with those before.
//
//	monopod serve --runtime=fake --data-dir=DIR &
//	go run ./testdata/abuse --data-dir=DIR --duration=1h --seed=1
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "abuse:", err)
		os.Exit(1)
	}
}

// command parses the flags, and runs until the time is over or it is interrupted.
func command() error {
	var c config
	flag.StringVar(&c.dataDir, "data-dir", "/var/lib/monopod", "data folder of the server, for its address and token")
	flag.DurationVar(&c.duration, "duration", time.Minute, "how long to send requests")
	flag.DurationVar(&c.settle, "settle", 15*time.Minute, "maximum time for the server to become idle again")
	flag.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "of the random choices")
	flag.IntVar(&c.workers, "workers", 8, "clients at once")
	flag.Float64Var(&c.memory, "memory", 32e6, "maximum growth of the server's memory, in bytes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, c, os.Stdout)
}
