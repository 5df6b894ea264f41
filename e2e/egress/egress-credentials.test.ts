/** Secrets that the host adds to requests: for unmodified clients, by the rules, and never visible anywhere. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { before, describe, it } from 'node:test';
import { ALLOWED, BASE, BYPASSES, OTHER_WAYS, VARIABLES } from '../fixtures/egress/credential-ways.ts';
import { EgressGuest, type AuditEntry } from '../fixtures/egress/egress-guest.ts';
import {
  expectedHeader,
  findInProcesses,
  findInTexts,
  makeSecret,
  makeSecrets,
  needlesOf,
  searchService,
  VENDORS,
} from '../fixtures/egress/egress-secrets.ts';
import { useEgress, type Egress } from '../fixtures/egress/egress-shared.ts';
import { uploadFile, uploadPackages } from '../fixtures/ports/guest-port.ts';
import type { Seen } from '../fixtures/internet/seen.ts';
import { PLACES, VENDOR_HOSTS, type Vendor } from '../fixtures/internet/zone.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const APPLICATION = '/srv/vendor';
const SCRIPT = 'vendor-clients.mjs';
function requestsOf(seen: readonly Seen[], vendor: Vendor): Seen[] {
  return seen.filter(({ kind, host }) => kind === 'http' && host === VENDOR_HOSTS[vendor]);
}

describe('credentials that the host adds', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  const secrets = makeSecrets();
  const planted: string[] = Object.values(secrets);
  const texts: Record<string, string> = {};
  let all: Egress;
  let guest: EgressGuest;
  let snapshotId: string;

  before(async () => {
    all = await egress();
    guest = resources.use(await EgressGuest.create(all.api, { mem_mib: 512, credentials: secrets }));
    await uploadPackages(all.api, guest.id, APPLICATION, ['openai', '@anthropic-ai/sdk']);
    const source = readFileSync(new URL(`../fixtures/guest/${SCRIPT}`, import.meta.url));
    await uploadFile(all.api, guest.id, `${APPLICATION}/${SCRIPT}`, source);
  });

  /** Runs curl for each argument and returns the statuses in order; `000` without an answer. */
  const curl = async (ways: readonly string[], who = guest): Promise<string[]> => {
    const one = (way: string): string =>
      `curl -s -g -m 15 --path-as-is -o /dev/null -w '%{http_code}\\n' ${way}`;
    return (await who.read(`${ways.map(one).join('; ')}; true`, { timeout: 240 })).split('\n');
  };
  const keepAnswer = async (name: string, body: unknown): Promise<number> => {
    const answer = await all.api.call('PUT', `/v1/runs/${guest.id}/credentials`, { body });
    texts[name] = answer.text;
    return answer.status;
  };

  it('appear as placeholders in exec, shell and terminal', async () => {
    const shell = await Shell.open(all.api, guest.id);
    const terminal = await Terminal.open(all.api, guest.id);
    const environments = {
      exec: await guest.read('env'),
      'exec, by its process': await guest.read("tr '\\0' '\\n' < /proc/self/environ"),
      shell: await shell.read('env'),
      terminal: (await terminal.ask('env; echo end-of-$((1+1))', /end-of-2/u)).input,
    };
    for (const socket of [shell, terminal]) socket.socket.terminate();
    for (const [place, environment] of Object.entries(environments)) {
      for (const vendor of VENDORS) {
        const [keys, urls] = VARIABLES[vendor];
        for (const key of keys)
          assert.match(
            environment,
            new RegExp(`^${key}=\\S*placeholder\\S*${guest.id}\\S*\\r?$`, 'mu'),
            place,
          );
        for (const url of urls)
          assert.match(environment, new RegExp(`^${url}=${BASE}/${vendor}\\r?$`, 'mu'), place);
      }
      texts[`environment of ${place}`] = environment;
    }
  });

  it("are added to requests in each vendor's own form, and replace the headers that the guest sends", async () => {
    await all.internet.forget();
    const forged = `-H 'Authorization: Bearer forged' -H 'X-Api-Key: forged' -H 'X-Goog-Api-Key: forged' -H 'Cookie: forged=1'`;
    const statuses = await curl(
      VENDORS.map((vendor) => `${forged} '${BASE}/${vendor}/v1/things?key=forged&q=1'`),
    );
    assert.deepEqual(
      statuses,
      VENDORS.map(() => '200'),
    );
    const seen = await all.internet.seen();
    for (const vendor of VENDORS) {
      const [request, ...more] = requestsOf(seen, vendor);
      const [name, value] = expectedHeader(vendor, secrets[vendor]);
      assert.equal(more.length, 0, vendor);
      assert.ok(request?.headers?.[name] === value, `${vendor} gets its secret in ${name}`);
      assert.doesNotMatch(JSON.stringify(request.headers), /forged|placeholder/u, vendor);
      assert.match(request.path ?? '', /^\/v1\/things\?/u);
    }
  });

  it("let the vendors' own clients work unmodified, also with streamed answers", async () => {
    const output = await guest.read(`cd ${APPLICATION} && node ${SCRIPT}`, { timeout: 180 });
    texts['output of the clients'] = output;
    const told = JSON.parse(output) as Record<
      string,
      { text: string; stream: Record<string, number | string> }
    >;
    for (const { text, stream } of Object.values(told)) {
      assert.deepEqual(
        [text, stream['text'], stream['pieces']],
        ['Hello from the vendor', 'Hello from the vendor', 4],
      );
      assert.ok(Number(stream['spreadMs']) > 300, 'the pieces are not held back');
    }
    assert.deepEqual(Object.keys(told), ['openai', 'anthropic']);
  });

  it('are not sent after a redirect, and no cookie reaches the guest', async () => {
    await all.internet.forget();
    const answer = await guest.read(`curl -s -m 15 -i ${BASE}/openai/redirect`);
    texts['answer of a redirect'] = answer;
    assert.doesNotMatch(answer, /set-cookie/iu);
    assert.deepEqual(
      (await all.internet.seen()).filter(({ at }) => at === PLACES.foreign),
      [],
    );
  });

  it('appear in the log only as service, method, path and status', async () => {
    const since = await guest.lastSeq();
    await curl([`'${BASE}/openai/models?secret=query'`, `-X POST -d x ${BASE}/anthropic/v1/other`]);
    const wanted = [
      { service: 'openai', method: 'GET', path: '/v1/models', status: 200 },
      { service: 'anthropic', method: 'POST', path: '/v1/other', status: 200 },
    ];
    const isEqual = ({ event, data }: AuditEntry, one: (typeof wanted)[number]): boolean =>
      event === 'credential.proxied' && JSON.stringify(sortKeys(data)) === JSON.stringify(sortKeys(one));
    assert.deepEqual(await guest.findUntold(wanted, since, isEqual), []);
  });

  it(
    'are sent only for allowed methods and paths, and for no other spelling of a path',
    { timeout: 300_000 },
    async () => {
      const key = makeSecret('github');
      planted.push(key);
      const endpoints = [{ methods: ['GET'], paths: ['/repos/acme/*'] }];
      const { github: _, ...others } = secrets;
      assert.ok(
        (await keepAnswer('PUT with rules', {
          credentials: others,
          credentials_v2: { github: { key, endpoints } },
        })) < 300,
      );
      await all.internet.forget();
      const quoted = BYPASSES.map((url) => `'${url}'`);
      const ways = [...quoted, ...OTHER_WAYS];
      const statuses = await curl(ways);
      const passed = ways.filter((_way, index) => !/^(?:4\d\d|000)$/u.test(statuses[index] ?? ''));
      assert.deepEqual(passed, []);
      assert.deepEqual(requestsOf(await all.internet.seen(), 'github'), []);
      assert.deepEqual(await curl([ALLOWED, `${BASE}/github/repos/acme/a/b?q=/../x`]), ['200', '200']);
      const seen = requestsOf(await all.internet.seen(), 'github');
      assert.deepEqual(
        seen.map(({ method, path }) => `${method} ${path?.split('?', 1)[0]}`),
        ['GET /repos/acme/thing', 'GET /repos/acme/a/b'],
      );
      assert.ok(seen.every(({ headers }) => headers?.['authorization'] === `Bearer ${key}`));
    },
  );

  it('are sent only if the network policy also allows the destination', async () => {
    await all.internet.forget();
    const since = await guest.lastSeq();
    await guest.putNetwork({ network: { allow: [VENDOR_HOSTS.anthropic] } });
    assert.deepEqual(await curl([`${BASE}/openai/models`, `${BASE}/anthropic/v1/models`]), ['403', '200']);
    assert.deepEqual(requestsOf(await all.internet.seen(), 'openai'), []);
    const isTold = ({ event, data }: AuditEntry, domain: string): boolean =>
      event === 'network.blocked' && data['domain'] === domain;
    assert.deepEqual(await guest.findUntold([VENDOR_HOSTS.openai as string], since, isTold), []);
    await guest.putNetwork({ network: { deny: [PLACES.vendors] } });
    assert.deepEqual(await curl([`${BASE}/openai/models`]), ['403'], 'by the address of the name');
    await guest.putNetwork({ network_profile: 'unrestricted' });
    assert.deepEqual(await curl([`${BASE}/openai/models`]), ['200']);
  });

  it('are replaced and removed while the sandbox runs', async () => {
    const openai = makeSecret('openai');
    planted.push(openai);
    assert.ok((await keepAnswer('PUT of another secret', { credentials: { openai } })) < 300);
    await all.internet.forget();
    const [first, second] = await curl([`${BASE}/openai/models`, `${BASE}/anthropic/v1/models`]);
    assert.deepEqual([first, /^4\d\d$/u.test(second ?? '')], ['200', true]);
    const [request] = requestsOf(await all.internet.seen(), 'openai');
    assert.ok(request?.headers?.['authorization'] === `Bearer ${openai}`, 'the new secret');
    const environment = await guest.read('env');
    assert.match(environment, /^OPENAI_API_KEY=/mu);
    const { text } = await all.api.call('GET', `/v1/runs/${guest.id}/credentials`);
    assert.match(text, /openai/u);
    Object.assign(texts, {
      'GET credentials': text,
      'GET of the record': JSON.stringify(await all.api.get(guest.id)),
    });
  });

  it(
    'are inherited by a fork and kept by a resume, but not by a restored sandbox',
    { timeout: 240_000 },
    async () => {
      const expectStatus = async (who: EgressGuest, wanted: RegExp): Promise<void> =>
        assert.match((await curl([`${BASE}/openai/models`], who))[0] ?? '', wanted);
      const isNote = ({ event, data }: AuditEntry, service: string): boolean =>
        event === 'credential.proxied' && data['service'] === service;
      const expectNote = async (who: EgressGuest, since: number): Promise<void> =>
        assert.deepEqual(await who.findUntold(['openai'], since, isNote), [], 'in its own log');
      const [child] = await all.clones.fork(guest.id, 1);
      const fork = resources.use(new EgressGuest(all.api, child!.id));
      await expectStatus(fork, /^200$/u);
      await expectNote(fork, 0);
      snapshotId = await all.clones.snapshot(guest.id);
      resources.defer(() => all.clones.deleteSnapshot(snapshotId));
      const restored = resources.use(new EgressGuest(all.api, (await all.clones.restore(snapshotId)).id));
      await expectStatus(restored, /^4\d\d$/u);
      await restored.putCredentials({ credentials: { openai: planted.at(-1) } });
      await expectStatus(restored, /^200$/u);
      await all.clones.hibernate(fork.id);
      await all.clones.resume(fork.id);
      const since = await fork.lastSeq();
      await expectStatus(fork, /^200$/u);
      await expectNote(fork, since);
    },
  );

  it('are not repeated in the answer when they are refused', async () => {
    const secret = makeSecret('refused');
    planted.push(secret);
    const bodies = [
      { credentials: { openai: `${secret}\n` } },
      { credentials: { [secret]: 'x' } },
      { credentials: { unknown: secret } },
      { credentials: { openai: { key: secret } } },
      { credentials: { openai: secret }, credentials_v2: { openai: { key: secret, endpoints: [] } } },
      {
        credentials_v2: {
          github: { key: secret, endpoints: [{ methods: ['GET'], paths: [`/../${secret}`] }] },
        },
      },
    ];
    for (const [index, body] of bodies.entries()) {
      assert.equal(
        await keepAnswer(`refusal ${index}`, body),
        400,
        JSON.stringify(texts[`refusal ${index}`]),
      );
      const create = await all.api.call('POST', '/v1/runs', { body: { image: 'coppice/base:1', ...body } });
      assert.equal(create.status, 400);
      texts[`refusal ${index} of a create`] = create.text;
    }
  });

  it('are in no log, process, file, snapshot, guest memory or answer', { timeout: 300_000 }, async () => {
    const marker = `marker-${randomBytes(16).toString('hex')}`;
    // The marker is in the environment of a process, as secrets would be, and in no file.
    const env = { MARKER: marker };
    await guest.read('setsid sleep 600 </dev/null >/dev/null 2>&1 &', { env });
    await all.clones.hibernate(guest.id);
    const needles = planted.flatMap(needlesOf);
    texts['output of the service'] = all.service.output;
    texts['audit log'] = JSON.stringify(await guest.audit());
    assert.deepEqual(findInTexts(needles, texts), []);
    assert.deepEqual(findInProcesses(needles), []);
    const { isMarkerFound, found } = await searchService(all.service, Buffer.from(marker), needles);
    assert.ok(isMarkerFound, 'the search finds the marker');
    assert.deepEqual(
      found.map((needle) => needle.toString('latin1').slice(0, 20)),
      [],
    );
  });
});

function sortKeys(data: Record<string, unknown>): unknown {
  return Object.fromEntries(Object.entries(data).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
