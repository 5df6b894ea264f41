package shell

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// report is the shell's message that a command has ended. The agent trusts it as far as programs have no bugs: root in
// the guest can write into the pipe, but deceives only itself.
type report struct {
	sequence uint64
	status   int
	// traced is "set -x"; strict is "set -e".
	traced, strict bool
	// jobs are the process groups of the jobs in the background.
	jobs map[int]bool
}

const (
	// maxLineBytes has room for a sequence, a status and all options of every shell.
	maxLineBytes = 256
	// maxJobs is more than the number of processes that the guest's kernel allows.
	maxJobs  = 65536
	maxCode  = 255
	lastLine = "."
)

var errBadReport = errors.New("the shell's report is invalid")

// reportReader parses strictly: an invalid line ends the session, because nothing after it could be trusted.
type reportReader struct{ lines *bufio.Reader }

func newReportReader(source io.Reader) *reportReader {
	return &reportReader{lines: bufio.NewReaderSize(source, maxLineBytes)}
}

// next returns the next report, or io.EOF when the shell has closed its end.
func (r *reportReader) next() (report, error) {
	first, err := r.line()
	if err != nil {
		return report{}, err
	}
	found, err := parseReport(first)
	if err != nil {
		return report{}, err
	}
	for {
		text, err := r.line()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return report{}, err
		}
		if text == lastLine {
			return found, nil
		}
		group, err := strconv.Atoi(text)
		if err != nil || group <= 1 || len(found.jobs) == maxJobs {
			return report{}, fmt.Errorf("%w: job %q", errBadReport, text)
		}
		found.jobs[group] = true
	}
}

func (r *reportReader) line() (string, error) {
	text, err := r.lines.ReadSlice('\n')
	switch {
	case err == nil:
		return string(text[:len(text)-1]), nil
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("%w: line longer than %d bytes", errBadReport, maxLineBytes)
	case errors.Is(err, io.EOF) && len(text) > 0:
		return "", io.ErrUnexpectedEOF
	}
	return "", err
}

func parseReport(line string) (report, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 {
		return report{}, fmt.Errorf("%w: %q", errBadReport, line)
	}
	sequence, sequenceErr := strconv.ParseUint(fields[0], 10, 64)
	status, statusErr := strconv.Atoi(fields[1])
	if sequenceErr != nil || statusErr != nil || status < 0 || status > maxCode {
		return report{}, fmt.Errorf("%w: %q", errBadReport, line)
	}
	return report{
		sequence: sequence, status: status, jobs: map[int]bool{},
		traced: strings.Contains(fields[2], "x"), strict: strings.Contains(fields[2], "e"),
	}, nil
}
