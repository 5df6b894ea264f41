package objects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// operationTime limits an operation whose context has no deadline.
	operationTime = 2 * time.Minute
	// attemptTime limits one attempt; a server that answers nothing must not use up the time of the operation.
	attemptTime  = 20 * time.Second
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Retry repeats an operation while it fails with ErrUnavailable, until its context ends. It reports the last failure.
func Retry(ctx context.Context, step string, attempt func(ctx context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, operationTime)
		defer cancel()
		ctx = limited
	}
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := attemptOnce(ctx, attempt)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrUnavailable) {
			return fmt.Errorf("%s: %w", step, err)
		}
		recordAttempt(ctx, err)
		// Some of it is random, so that many clients do not return at once.
		wait := backoff/2 + rand.N(backoff)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (%w)", step, err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

func attemptOnce(ctx context.Context, attempt func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	err := attempt(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: no answer within %v", ErrUnavailable, attemptTime)
	}
	return err
}
