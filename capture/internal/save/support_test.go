package save

import (
	"bytes"
	"testing"

	"coppice/capture/testing/mapper"
)

func init() { mapper.Serve() }

const mib = 1 << 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func filled(length int, value byte) []byte { return bytes.Repeat([]byte{value}, length) }
