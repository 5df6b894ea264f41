// Command blocks keeps persistent disks in the object store and serves their versions to virtual machines.
//
//	blocks serve   answers requests on standard input (package serve), and NBD on the socket of --listen-fd
//	blocks import  writes standard input as the next version of a disk, which it takes and releases
//	blocks export  writes a version of a disk to standard output
//
// The store is that of COPPICE_OBJECT_STORE; its credentials are in the environment.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/cache"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/nbd"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/serve"
)

type options struct {
	store, objects, cache string
	cacheMiB, memoryMiB   int64
	listen, overlays      int
	readTime              time.Duration
	org, disk             string
	version               int64
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
		return fmt.Errorf("usage: blocks serve | import | export [options]")
	}
	chosen, err := parse(arguments[0], arguments[1:])
	if err != nil {
		return err
	}
	store, err := objects.Open(ctx, chosen.store, chosen.objects)
	if err != nil {
		return err
	}
	var disk *cache.Disk
	if chosen.cache != "" {
		if disk, err = cache.OpenDisk(chosen.cache, chosen.cacheMiB<<20); err != nil {
			return err
		}
	}
	disks, source := chain.New(store), blockmap.NewSource(store, disk)
	switch arguments[0] {
	case "serve":
		return runServer(ctx, chosen, disks, source)
	case "import":
		return importDisk(ctx, chosen, disks, source, os.Stdin)
	case "export":
		return exportDisk(ctx, chosen, disks, source, os.Stdout)
	default:
		return fmt.Errorf("there is no subcommand %q: serve, import or export", arguments[0])
	}
}

func parse(name string, arguments []string) (chosen options, err error) {
	flags := flag.NewFlagSet("blocks "+name, flag.ContinueOnError)
	flags.StringVar(&chosen.store, "store", os.Getenv("COPPICE_OBJECT_STORE"), "object store: directory, or s3://…")
	flags.StringVar(&chosen.objects, "objects", "objects", "path of the directory store")
	flags.StringVar(&chosen.cache, "cache", "", "directory of the cache; empty for none")
	flags.Int64Var(&chosen.cacheMiB, "cache-mib", 4096, "size limit of the cache")
	flags.Int64Var(&chosen.memoryMiB, "memory-mib", 256, "limit of the content of NBD requests in progress")
	flags.IntVar(&chosen.listen, "listen-fd", -1, "descriptor of the listening NBD socket")
	flags.IntVar(&chosen.overlays, "overlays-fd", -1, "descriptor of the directory of overlays")
	flags.DurationVar(&chosen.readTime, "read-time", time.Hour, "how long a read waits for the object store")
	flags.StringVar(&chosen.org, "org", "", "organization of the disk (import, export)")
	flags.StringVar(&chosen.disk, "disk", "", "id of the disk (import, export)")
	flags.Int64Var(&chosen.version, "version", 0, "version to export; 0 for the newest")
	err = flags.Parse(arguments)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return chosen, err
}

// runServer ends when standard input ends: then the runner is gone.
func runServer(ctx context.Context, chosen options, disks *chain.Disks, source *blockmap.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exports := &serve.Exports{Disks: disks, Source: source}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ended := make(chan error, 2)
	served := make(chan struct{})
	if chosen.listen >= 0 {
		listener, err := net.FileListener(os.NewFile(uintptr(chosen.listen), "nbd"))
		if err != nil {
			return fmt.Errorf("descriptor %d is not a listening socket: %w", chosen.listen, err)
		}
		if unixListener, ok := listener.(*net.UnixListener); ok {
			unixListener.SetUnlinkOnClose(false) // the next server listens on it again
		}
		server := nbd.NewServer(exports, nbd.Options{ReadTime: chosen.readTime, MemoryBytes: chosen.memoryMiB << 20, Log: log})
		go func() {
			defer close(served)
			ended <- server.Serve(ctx, listener)
		}()
	} else {
		close(served)
	}
	control := &serve.Server{Disks: disks, Source: source, Exports: exports, Overlays: serve.Beneath{Directory: chosen.overlays}}
	go func() { ended <- control.Run(ctx, os.Stdin, os.Stdout) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	cancel()
	<-served
	return err
}
