/** A hostctl of the test's own, in the network namespace of the test. */
import { spawn } from 'node:child_process';
import { HOSTCTL } from '../../config/testing/hostctl.ts';
import { JsonLineClient } from '../../lib/streams/json-line-client.ts';
import { OriginalDestinations } from '../proxy/original-destination.ts';

export interface OwnDestinations extends Disposable {
  destinations: OriginalDestinations;
}

export function startDestinations(): OwnDestinations {
  const child = spawn(HOSTCTL, ['originals'], { env: {}, stdio: ['pipe', 'pipe', 'inherit'] });
  const client = new JsonLineClient({ input: child.stdout, output: child.stdin, timeoutMs: 5000 });
  return {
    destinations: new OriginalDestinations(client),
    [Symbol.dispose]: () => void child.stdin.end(),
  };
}
