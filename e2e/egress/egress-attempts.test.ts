/**
 * Makes the attempts of the bypass suite where nothing stops them, without a virtual machine: an attempt that fails
 * everywhere proves nothing. For unanswered attempts the reports of the servers count.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import type { Attempt, AttemptResult } from '../fixtures/egress/egress-attempt.ts';
import { listPackets, type EgressCase, type Surroundings } from '../fixtures/egress/egress-case.ts';
import { listCaseGroups } from '../fixtures/egress/egress-cases.ts';
import { buildProbe } from '../fixtures/egress/egress-guest.ts';
import type { EgressInternet } from '../fixtures/internet/egress-internet.ts';
import { useInternet } from '../fixtures/egress/egress-shared.ts';
import { HOST_ADDRESS, PLACES } from '../fixtures/internet/zone.ts';

const TIMEOUT_MS = 60_000;
/** Attempts that send too little for an answer, or that no server here answers. */
const UNANSWERED =
  /^(?:half a hello|silence|another guest|CONNECT)|guest$|as |closed|ECH|API|server on the host/u;
const PLACES_ALL: ReadonlySet<string> = new Set(Object.values(PLACES));
const AROUND: Surroundings = {
  resolver: PLACES.resolver,
  gateway: HOST_ADDRESS,
  sibling: '198.51.100.99',
  hostPort: 1,
  apiPort: 1,
};

function ipOf({ address }: Attempt): string {
  return address.replace(/:\d+$/u, '');
}

describe('an attempt to get out', () => {
  const resources = new AsyncDisposableStack();
  const open = useInternet(resources);
  let internet: EgressInternet;
  let probe: string;

  before(async () => {
    internet = await open();
    const directory = mkdtempSync(join(tmpdir(), 'coppice-egress-'));
    resources.defer(() => rmSync(directory, { recursive: true }));
    probe = join(directory, 'egress-probe');
    writeFileSync(probe, await buildProbe(), { mode: 0o755 });
  });

  const attempt = (cases: readonly EgressCase[]): Promise<AttemptResult[]> => {
    const { promise, resolve, reject } = Promise.withResolvers<AttemptResult[]>();
    const child = execFile(probe, ['run'], { timeout: TIMEOUT_MS }, (error, output) =>
      error === null ? resolve(JSON.parse(output) as AttemptResult[]) : reject(error),
    );
    child.stdin?.end(JSON.stringify(cases.map((one) => one.attempt)));
    return promise;
  };

  it('is answered by the servers if nothing stops it', async () => {
    const cases = listCaseGroups(AROUND)
      .flatMap((group) => group.cases)
      .filter((one) => PLACES_ALL.has(ipOf(one.attempt)) && one.attempt.kind !== 'packet')
      .filter((one) => !UNANSWERED.test(one.attempt.name));
    const results = await attempt(cases);
    assert.ok(cases.length > 50);
    assert.deepEqual(
      results.filter(({ outcome }) => outcome !== 'answered'),
      [],
    );
  });

  it('is seen by the servers and counters if no server answers', async () => {
    await internet.forget();
    await attempt(listPackets(AROUND));
    const seen = await internet.seen();
    for (const name of ['a raw datagram (ip)', `a datagram as ${AROUND.sibling} (ip)`])
      assert.ok(
        seen.some(({ text }) => text === name),
        name,
      );
    for (const [name, count] of Object.entries(internet.counts())) assert.ok(count > 0, name);
    assert.ok(
      internet.spoofers().some((one) => one.startsWith(`${AROUND.sibling} . ${PLACES.allowed} . udp`)),
    );
  });
});
