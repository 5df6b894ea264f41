// Command blocks keeps persistent disks and captures in the object store, and serves versions of disks to virtual machines.
//
//	blocks serve   answers requests on standard input (package serve), and NBD on the socket of --socket
//	blocks export  writes a version of a disk to standard output, as a raw file or as qcow2
//	blocks store   stores the files of a capture, as standard input asks (package transfer)
//	blocks fetch   writes the files of a stored capture
//
// The store is that of COPPICE_OBJECT_STORE; its credentials are in the environment.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/cache"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/transfer"
)

type options struct {
	store, objects, cache string
	cacheMiB, memoryMiB   int64
	socket                string
	listen, overlays, uid int
	readTime              time.Duration
	org, disk, format     string
	version               int64
	flags                 *flag.FlagSet
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "blocks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("usage: blocks serve | export | store | fetch [options]")
	}
	chosen, err := parse(arguments[0], arguments[1:])
	if err != nil {
		return err
	}
	switch arguments[0] {
	case "serve":
		if chosen.listen < 0 {
			return runSupervisor(ctx, chosen)
		}
		return runServer(ctx, chosen)
	case "export":
		return runExport(ctx, chosen, os.Stdout)
	case "store":
		return runTransfer(ctx, chosen, transfer.Store)
	case "fetch":
		return runTransfer(ctx, chosen, transfer.Fetch)
	default:
		return fmt.Errorf("there is no subcommand %q: serve, export, store or fetch", arguments[0])
	}
}

// open opens the store and the cache, which belongs to one process.
func open(ctx context.Context, chosen options) (*chain.Disks, *blockmap.Source, *objects.Health, error) {
	store, err := objects.Open(ctx, chosen.store, chosen.objects)
	if err != nil {
		return nil, nil, nil, err
	}
	health := &objects.Health{}
	store = objects.Watch(store, health)
	var disk *cache.Disk
	if chosen.cache != "" {
		if disk, err = cache.OpenDisk(chosen.cache, chosen.cacheMiB<<20); err != nil {
			return nil, nil, nil, err
		}
	}
	return chain.New(store), blockmap.NewSource(store, disk), health, nil
}

func parse(name string, arguments []string) (chosen options, err error) {
	flags := flag.NewFlagSet("blocks "+name, flag.ContinueOnError)
	flags.StringVar(&chosen.store, "store", os.Getenv("COPPICE_OBJECT_STORE"), "object store: directory, or s3://…")
	flags.StringVar(&chosen.objects, "objects", "objects", "path of the directory store")
	flags.StringVar(&chosen.cache, "cache", "", "directory of the cache; empty for none")
	flags.Int64Var(&chosen.cacheMiB, "cache-mib", 4096, "size limit of the cache")
	flags.Int64Var(&chosen.memoryMiB, "memory-mib", 256, "limit of the content of NBD requests in progress")
	flags.StringVar(&chosen.socket, "socket", "", "path of the NBD socket; empty for none")
	flags.IntVar(&chosen.uid, "uid", 0, "user and group id to become; 0 for those of the caller")
	flags.IntVar(&chosen.listen, "listen-fd", -1, "descriptor of the listening NBD socket: serve without a supervisor")
	flags.IntVar(&chosen.overlays, "overlays-fd", -1, "descriptor of the directory of overlays")
	flags.DurationVar(&chosen.readTime, "read-time", time.Hour, "how long a read waits for the object store")
	flags.StringVar(&chosen.org, "org", "", "organization of the disk (export)")
	flags.StringVar(&chosen.disk, "disk", "", "id of the disk (export)")
	flags.StringVar(&chosen.format, "format", "raw", "raw or qcow2 (export)")
	flags.Int64Var(&chosen.version, "version", 0, "version; 0 for the newest (export)")
	chosen.flags = flags
	err = flags.Parse(arguments)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return chosen, err
}
