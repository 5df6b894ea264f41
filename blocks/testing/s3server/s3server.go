// Package s3server starts a real S3 server, versitygw, over a temporary directory.
package s3server

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const startTime = 20 * time.Second

// Start starts the program that COPPICE_TEST_OBJECT_SERVER names and returns a value of COPPICE_OBJECT_STORE for it. It
// skips the test, with the reason, if the variable is unset. The server ends with the test.
func Start(t testing.TB) string {
	program := os.Getenv("COPPICE_TEST_OBJECT_SERVER")
	if program == "" {
		t.Skip("COPPICE_TEST_OBJECT_SERVER is unset: there is no real S3 server to test with")
	}
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	command := exec.Command(program, "--port", address, "--quiet", "posix", data)
	command.Env = append(os.Environ(), "ROOT_ACCESS_KEY=test-key", "ROOT_SECRET_KEY=test-secret")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	t.Setenv("AWS_ACCESS_KEY_ID", "test-key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	waitForPort(t, address)
	return fmt.Sprintf("s3://bucket/some/prefix?endpoint=http://%s", address)
}

func freeAddress(t testing.TB) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func waitForPort(t testing.TB, address string) {
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = connection.Close()
			return
		}
	}
	t.Fatal("versitygw does not listen")
}
