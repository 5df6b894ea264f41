/** Named secrets of an organization: a new value reaches sandboxes without their help, and is visible nowhere. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { BASE } from '../fixtures/egress/credential-ways.ts';
import { EgressGuest, type AuditEntry } from '../fixtures/egress/egress-guest.ts';
import { findInProcesses, findInTexts, makeSecret, needlesOf } from '../fixtures/egress/egress-secrets.ts';
import { useEgress, type Egress } from '../fixtures/egress/egress-shared.ts';
import { VENDOR_HOSTS } from '../fixtures/internet/zone.ts';
import { startInBackground } from '../fixtures/ports/guest-port.ts';

const NAME = 'openai-production';
const CREDENTIALS = { openai: { secret: NAME } };
/** A process of the guest that was started before the secret changes, and only ever sees its placeholder. */
const LOOP = `sh -c 'while true; do curl -s -m 15 -o /dev/null ${BASE}/openai/loop; sleep 0.2; done'`;

describe('a named secret', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  const planted: string[] = [];
  const texts: Record<string, string> = {};
  let all: Egress;
  let guest: EgressGuest;
  let child: EgressGuest;

  /** Stores a new value. Returns it with the answer. */
  const rotate = async (): Promise<{ value: string; body: Record<string, unknown> }> => {
    const value = makeSecret('named');
    planted.push(value);
    const { status, text, body } = await all.api.call('PUT', `/v1/secrets/${NAME}`, { body: { value } });
    assert.equal(status, 200, text);
    texts[`PUT ${planted.length}`] = text;
    return { value, body };
  };
  /** Returns the credentials of the requests for a path that the vendor has seen, oldest first. */
  const keysOf = async (path: string): Promise<string[]> =>
    (await all.internet.seen())
      .filter(
        ({ kind, host, path: seen }) => kind === 'http' && host === VENDOR_HOSTS.openai && seen === path,
      )
      .map(({ headers }) => headers?.['authorization'] ?? '');
  /** Sends one request, and fails unless it was signed with the value. */
  const expectSigned = async (who: EgressGuest, value: string): Promise<void> => {
    const path = `/v1/once-${who.id}-${planted.indexOf(value)}`;
    const status = await who.read(`curl -s -m 15 -o /dev/null -w '%{http_code}' ${BASE}/openai${path}`);
    assert.equal(status, '200');
    const [key, ...more] = await keysOf(path);
    assert.ok(key === `Bearer ${value}` && more.length === 0, 'signed with the current value');
  };
  const isRotation = ({ event, data }: AuditEntry, version: number): boolean =>
    event === 'credentials.rotated' && JSON.stringify(data['credentials']).includes(`"version":${version}`);

  before(async () => {
    all = await egress();
    await rotate();
    guest = resources.use(await EgressGuest.create(all.api, { credentials: CREDENTIALS }));
    await startInBackground(all.api, guest.id, 'loop', LOOP);
  });

  it('signs the requests of a sandbox whose credentials name it', async () => {
    await expectSigned(guest, planted[0]!);
    assert.match(await guest.read('env'), /^OPENAI_API_KEY=\S*placeholder/mu);
  });

  it('signs the next request of a running sandbox with its new value, also of processes that run already', async () => {
    const since = await guest.lastSeq();
    const { value, body } = await rotate();
    assert.deepEqual([body['version'], body['sandboxes'], body['outdated_sandboxes']], [2, 1, 0]);
    await expectSigned(guest, value);
    const isSeen = async (): Promise<true | undefined> =>
      (await keysOf('/v1/loop')).includes(`Bearer ${value}`) ? true : undefined;
    await pollUntil({ step: 'a request of the loop', timeoutMs: 30_000, intervalMs: 200 }, isSeen);
    const keys = await keysOf('/v1/loop');
    assert.ok(keys.includes(`Bearer ${planted[0]}`), 'the loop ran before');
    const first = keys.indexOf(`Bearer ${value}`);
    assert.ok(keys.slice(first).every((key) => key === `Bearer ${value}`));
    assert.deepEqual(await guest.findUntold([2], since, isRotation), []);
  });

  it(
    'has its new value in children, and in a hibernated sandbox from its resume',
    { timeout: 240_000 },
    async () => {
      const [made] = await all.clones.fork(guest.id, 1);
      child = resources.use(new EgressGuest(all.api, made!.id));
      await all.clones.hibernate(guest.id);
      const { value, body } = await rotate();
      assert.deepEqual([body['version'], body['sandboxes'], body['outdated_sandboxes']], [3, 2, 0]);
      await expectSigned(child, value);
      const since = await guest.lastSeq();
      await all.clones.resume(guest.id);
      await expectSigned(guest, value);
      assert.deepEqual(await guest.findUntold([3], since, isRotation), []);
    },
  );

  it('has its last value after the runner and control were killed', { timeout: 240_000 }, async () => {
    await all.service.killRole('runner');
    await all.service.killRole('control');
    const isServed = async (): Promise<true | undefined> => {
      const status = await guest.read(
        `curl -s -m 15 -o /dev/null -w '%{http_code}' ${BASE}/openai/ready; true`,
      );
      return status === '200' ? true : undefined;
    };
    await pollUntil({ step: 'the secrets of the runner', timeoutMs: 60_000, intervalMs: 500 }, isServed);
    assert.equal((await keysOf('/v1/ready')).at(-1), `Bearer ${planted.at(-1)}`);
    const { value } = await rotate();
    for (const who of [guest, child]) await expectSigned(who, value);
  });

  it('is not deleted while it is named, and is visible nowhere', async () => {
    const refused = await all.api.call('DELETE', `/v1/secrets/${NAME}`);
    assert.equal(refused.status, 409, refused.text);
    assert.ok([guest.id, child.id].every((id) => refused.text.includes(id)));
    texts['refusal'] = refused.text;
    texts['list'] = (await all.api.call('GET', '/v1/secrets')).text;
    texts['audit logs'] = JSON.stringify([await guest.audit(), await child.audit()]);
    texts['output of the service'] = all.service.output;
    texts['environment'] = await guest.read("env; tr '\\0' '\\n' < /proc/1/environ");
    const needles = planted.flatMap(needlesOf);
    assert.deepEqual(findInTexts(needles, texts), []);
    assert.deepEqual(findInProcesses(needles), []);
    await child.destroy();
    await guest.putCredentials({});
    assert.equal((await all.api.call('DELETE', `/v1/secrets/${NAME}`)).status, 204);
    const gone = await guest.read(`curl -s -m 15 -o /dev/null -w '%{http_code}' ${BASE}/openai/models`);
    assert.match(gone, /^4\d\d$/u);
  });
});
