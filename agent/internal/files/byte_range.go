package files

import (
	"strconv"
	"strings"
)

// span is a part of a file: length bytes from first.
type span struct{ first, length int64 }

type rangeKind int

const (
	wholeFile rangeKind = iota
	partOfFile
	unsatisfiable
)

// parseRange parses one range in bytes. Anything else (other units, several ranges, nonsense) means the whole file, as
// RFC 9110 allows.
func parseRange(header string, size int64) (span, rangeKind) {
	whole := span{0, size}
	text, isBytes := strings.CutPrefix(header, "bytes=")
	first, last, hasDash := strings.Cut(text, "-")
	if !isBytes || !hasDash {
		return whole, wholeFile
	}
	if first == "" {
		return suffixRange(last, size)
	}
	from, err := parseOffset(first)
	if err != nil {
		return whole, wholeFile
	}
	to := size - 1
	if last != "" {
		asked, err := parseOffset(last)
		if err != nil || asked < from {
			return whole, wholeFile
		}
		to = min(asked, to)
	}
	if from >= size {
		return span{}, unsatisfiable
	}
	return span{from, to - from + 1}, partOfFile
}

// suffixRange returns the range of the last n bytes.
func suffixRange(text string, size int64) (span, rangeKind) {
	n, err := parseOffset(text)
	if err != nil {
		return span{0, size}, wholeFile
	}
	if n == 0 || size == 0 {
		return span{}, unsatisfiable
	}
	n = min(n, size)
	return span{size - n, n}, partOfFile
}

// parseOffset accepts digits only; ParseInt would accept signs. A number too large for an offset is beyond the end of
// every file.
func parseOffset(text string) (int64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 1<<63 - 1, nil
	}
	return n, nil
}
