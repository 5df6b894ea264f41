package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"

	"coppice/blocks/internal/captures"
	"coppice/blocks/internal/nbd"
	"coppice/blocks/internal/serve"
	"coppice/blocks/internal/supervise"
)

const (
	// keyVariable has the key of the names of exports, hexadecimal. A program that this one runs must not inherit it.
	keyVariable = "COPPICE_EXPORT_KEY"
	minKeyBytes = 16
	// Descriptors of a server that a supervisor starts.
	listenDescriptor   = 3
	overlaysDescriptor = 4
)

func takeKey() ([]byte, error) {
	text := os.Getenv(keyVariable)
	if err := os.Unsetenv(keyVariable); err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) < minKeyBytes {
		return nil, fmt.Errorf("%s: must be set to at least %d bytes, hexadecimal", keyVariable, minKeyBytes)
	}
	return key, nil
}

// runSupervisor makes the socket, becomes unprivileged, and runs servers until standard input ends.
func runSupervisor(ctx context.Context, chosen options) error {
	key, err := takeKey()
	if err != nil {
		return err
	}
	if chosen.socket == "" {
		return errors.New("--socket is missing")
	}
	program, err := supervise.Executable()
	if err != nil {
		return err
	}
	socket, err := supervise.Listen(chosen.socket)
	if err != nil {
		return err
	}
	files, arguments := []*os.File{socket}, serverArguments(chosen)
	if chosen.overlays >= 0 {
		files = append(files, os.NewFile(uintptr(chosen.overlays), "overlays"))
		arguments = append(arguments, fmt.Sprintf("--overlays-fd=%d", overlaysDescriptor))
	}
	if chosen.uid != 0 {
		if err := supervise.BecomeUnprivileged(chosen.uid); err != nil {
			return err
		}
	}
	command := func() *exec.Cmd {
		command := exec.Command(program, arguments...)
		command.Args[0] = os.Args[0]
		command.Env = append(os.Environ(), keyVariable+"="+hex.EncodeToString(key))
		command.ExtraFiles, command.Stderr = files, os.Stderr
		return command
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return (&supervise.Supervisor{Command: command, Log: log}).Run(ctx, os.Stdin, os.Stdout)
}

// serverArguments are the options that a server gets from its supervise.
func serverArguments(chosen options) []string {
	arguments := []string{"serve", fmt.Sprintf("--listen-fd=%d", listenDescriptor)}
	chosen.flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "socket", "uid", "listen-fd", "overlays-fd":
		default:
			arguments = append(arguments, "--"+f.Name+"="+f.Value.String())
		}
	})
	return arguments
}

// runServer ends when standard input ends: then the runner or the supervisor is gone.
func runServer(ctx context.Context, chosen options) error {
	key, err := takeKey()
	if err != nil {
		return err
	}
	disks, source, health, err := open(ctx, chosen)
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(uintptr(chosen.listen), "nbd"))
	if err != nil {
		return fmt.Errorf("descriptor %d is not a listening socket: %w", chosen.listen, err)
	}
	if unixListener, ok := listener.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false) // the next server listens on it again
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	exports := &serve.Exports{Disks: disks, Source: source, Key: key}
	data := nbd.NewServer(exports, nbd.Options{ReadTime: chosen.readTime, MemoryBytes: chosen.memoryMiB << 20, Log: log})
	control := &serve.Server{Disks: disks, Captures: captures.New(disks.Store), Source: source, Exports: exports, Health: health, Reads: data.Reads,
		Overlays: serve.Beneath{Directory: chosen.overlays}}
	ended, served := make(chan error, 2), make(chan struct{})
	go func() {
		defer close(served)
		ended <- data.Serve(ctx, listener)
	}()
	fmt.Println(supervise.Ready)
	go func() { ended <- control.Run(ctx, os.Stdin, os.Stdout) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	cancel()
	<-served
	return err
}
