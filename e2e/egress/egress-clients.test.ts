/** Unmodified programs under an allow list of names: they work as without a proxy. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { EgressGuest } from '../fixtures/egress/egress-guest.ts';
import { useEgress, type Egress } from '../fixtures/egress/egress-shared.ts';
import { uploadFile } from '../fixtures/ports/guest-port.ts';
import { PACKAGE_NAME, PACKAGE_TEXT } from '../fixtures/internet/package-hosts.ts';
import { GIT_HOST, NPM_HOST, PLACES, PYPI_HOST } from '../fixtures/internet/zone.ts';
import { ensureNodeImage } from '../fixtures/images/node-image.ts';
import type { Descriptor } from '../fixtures/images/oci-layout.ts';
import { IS_LONG } from '../fixtures/test-size.ts';

const CA = '/srv/ca.pem';
const NPM = '/srv/npm';
/** Far more than the buffers on the way hold. */
const UPLOAD_MIB = IS_LONG ? 100 : 32;
const MAX_ARCHIVE_BYTES = 256 * 1024 * 1024;
/** Longer than the pause between two events; shorter than all pauses together. */
const STREAM_SPREAD_MS = 500;
/** Exit code of curl. */
const COULD_NOT_RESOLVE = 6;

/** Packs npm as the Node.js image has it, because the built-in image leaves it out. */
async function packNpm(): Promise<Buffer> {
  const { layoutDirectory } = await ensureNodeImage();
  const read = (digest: string): Buffer =>
    readFileSync(join(layoutDirectory, 'blobs', digest.replace(':', '/')));
  const index = JSON.parse(readFileSync(join(layoutDirectory, 'index.json'), 'utf8')) as {
    manifests: Descriptor[];
  };
  const manifest = JSON.parse(read(index.manifests[0]!.digest).toString()) as { layers: Descriptor[] };
  const layer = manifest.layers.at(-1)!.digest.replace(':', '/');
  const script = `mkdir "$2" && tar -xzf "$1" -C "$2" usr/local/lib/node_modules/npm && tar -c -C "$2/usr/local/lib/node_modules" npm; rm -r "$2"`;
  const path = join(layoutDirectory, 'blobs', layer);
  return execFileSync('sh', ['-c', script, 'sh', path, `/var/tmp/coppice-e2e-npm-${process.pid}`], {
    maxBuffer: MAX_ARCHIVE_BYTES,
  });
}

const STREAM_READER = `
import json, ssl, sys, time, urllib.request
context = ssl.create_default_context(cafile='${CA}')
times = []
with urllib.request.urlopen('https://allowed.example/events', context=context, timeout=60) as answer:
    for line in answer:
        if line.startswith(b'data:'):
            times.append(time.monotonic())
print(json.dumps([len(times), (times[-1] - times[0]) * 1000]))
`;

const DOWNLOADER = `
import hashlib, re, ssl, urllib.parse, urllib.request
context = ssl.create_default_context(cafile='${CA}')
base = 'https://${PYPI_HOST}/simple/${PACKAGE_NAME}/'
page = urllib.request.urlopen(base, context=context, timeout=60).read().decode()
link, digest = re.search(r'href="([^#"]+)#sha256=([0-9a-f]+)"', page).groups()
data = urllib.request.urlopen(urllib.parse.urljoin(base, link), context=context, timeout=60).read()
assert hashlib.sha256(data).hexdigest() == digest
print('whole')
`;

describe('programs under a list of allowed addresses', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  let all: Egress;
  let guest: EgressGuest;

  before(async () => {
    all = await egress();
    const network = { allow: [`${PLACES.allowed}/32`], deny: ['0.0.0.0/0'] };
    guest = resources.use(await EgressGuest.create(all.api, { network }));
    await uploadFile(all.api, guest.id, CA, readFileSync(all.internet.caPath));
  });

  it('reach a server by a name that resolves to one of them', async () => {
    const answer = `reached ${PLACES.allowed} for allowed.example`;
    assert.equal(await guest.read('curl -s -m 20 http://allowed.example/'), answer);
    assert.equal(await guest.read(`curl -s -m 20 --cacert ${CA} https://allowed.example/`), answer);
  });

  it('fail at once for a name that resolves to another address, and the log has the name and the address', async () => {
    const since = await guest.lastSeq();
    const started = performance.now();
    const command = 'curl -sS -m 20 http://foreign.example/';
    const { exit_code: code, stderr } = await all.api.exec(guest.id, command);
    assert.deepEqual([code, /Could not resolve host/u.test(stderr)], [COULD_NOT_RESOLVE, true], stderr);
    assert.ok(performance.now() - started < 10_000, 'without waiting for a timeout');
    const told = await guest.findUntold(
      ['foreign.example'],
      since,
      ({ event, data }, domain) =>
        event === 'network.blocked' && data['domain'] === domain && data['ip'] === PLACES.foreign,
    );
    assert.deepEqual(told, []);
  });
});

describe('programs under a list of allowed names', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  let all: Egress;
  let guest: EgressGuest;

  before(async () => {
    all = await egress();
    const network = { allow: ['allowed.example', '*.packages.example'] };
    guest = resources.use(await EgressGuest.create(all.api, { mem_mib: 512, network }));
    await uploadFile(all.api, guest.id, CA, readFileSync(all.internet.caPath));
  });

  it('clone a repository over HTTPS', async () => {
    const url = `https://${GIT_HOST}/${PACKAGE_NAME}.git`;
    await guest.read(`git -c http.sslCAInfo=${CA} clone --quiet ${url} /tmp/clone`, { timeout: 120 });
    assert.equal(await guest.read('git -C /tmp/clone log --format=%s'), 'A thing');
  });

  it('install a package with npm', { timeout: 300_000 }, async () => {
    await uploadFile(all.api, guest.id, `${NPM}.tar`, await packNpm());
    await guest.read(`mkdir ${NPM} && tar -xf ${NPM}.tar -C ${NPM} --strip-components=1 && rm ${NPM}.tar`, {
      timeout: 120,
    });
    const options = `--registry=https://${NPM_HOST}/ --cafile=${CA} --no-audit --no-fund --no-update-notifier --fetch-retries=0`;
    const install = `mkdir /tmp/use && cd /tmp/use && echo '{}' > package.json && node ${NPM}/bin/npm-cli.js install ${options} ${PACKAGE_NAME}`;
    await guest.read(install, { timeout: 240 });
    assert.equal(await guest.read(`cd /tmp/use && node -p 'require("${PACKAGE_NAME}")'`), PACKAGE_TEXT);
  });

  it('read a package index and download from it, as pip does', async () => {
    await uploadFile(all.api, guest.id, '/srv/downloader.py', DOWNLOADER);
    assert.equal(await guest.read('python3 /srv/downloader.py', { timeout: 120 }), 'whole');
  });

  it('speak HTTP/2', async () => {
    await all.internet.forget();
    const answer = await guest.read(
      `curl -s -m 30 --http2 --cacert ${CA} -w '%{http_version}' https://allowed.example/`,
    );
    assert.equal(answer, `reached ${PLACES.allowed} for allowed.example\n2`);
    const request = (await all.internet.seen()).find(({ kind }) => kind === 'http');
    assert.deepEqual([request?.version, request?.host], ['2.0', 'allowed.example']);
  });

  it(`upload ${UPLOAD_MIB} MiB`, { timeout: 300_000 }, async () => {
    const source = `head -c ${UPLOAD_MIB}M /dev/zero | tr '\\0' 'u'`;
    const send = `curl -s -m 240 --http1.1 --cacert ${CA} -T - https://allowed.example/upload`;
    const answer = JSON.parse(await guest.read(`${source} | ${send}`, { timeout: 250 })) as Record<
      string,
      unknown
    >;
    const wanted = await guest.read(`${source} | sha256sum | cut -d' ' -f1`, { timeout: 120 });
    assert.deepEqual(answer, { size_bytes: UPLOAD_MIB << 20, sha256: wanted });
  });

  it('receive events as they are sent', async () => {
    await uploadFile(all.api, guest.id, '/srv/stream-reader.py', STREAM_READER);
    const [count, spreadMs] = JSON.parse(
      await guest.read('python3 /srv/stream-reader.py', { timeout: 120 }),
    ) as number[];
    assert.equal(count, 5);
    assert.ok(spreadMs! > STREAM_SPREAD_MS, `came within ${spreadMs} ms`);
  });

  it('fail at once when a host is not allowed', async () => {
    const started = performance.now();
    const { exit_code: code } = await all.api.exec(
      guest.id,
      `curl -s -m 20 --cacert ${CA} https://foreign.example/`,
    );
    assert.notEqual(code, 0);
    assert.ok(performance.now() - started < 10_000, 'without waiting for a timeout');
  });
});
