import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import type { Api } from '../fixtures/api/api.ts';
import {
  FREE_PRIVATE_ADDRESS,
  HOST_PRIVATE_ADDRESS,
  HOST_PUBLIC_ADDRESS,
  PORT,
  PRIVATE_ADDRESS,
  PUBLIC_ADDRESS,
  startInternet,
} from '../fixtures/internet/internet.ts';
import { shared } from '../fixtures/service/shared.ts';

describe('the default network', () => {
  let api: Api;
  let id: string;
  let sibling: string;
  let internet: AsyncDisposable;
  const hostServer = http.createServer((_request, response) => response.end('host'));
  before(async () => {
    ({ api } = await shared());
    internet = await startInternet();
    hostServer.listen(0, '0.0.0.0');
    const image = { image: 'coppice/base:1', mem_mib: 256 };
    [{ id }, { id: sibling }] = await Promise.all([api.create(image), api.create(image)]);
    await api.exec(sibling, 'nohup python3 -m http.server 8000 >/dev/null 2>&1 &');
  });
  after(async () => {
    await Promise.all([api.destroy(id), api.destroy(sibling)]);
    hostServer.close();
    await internet[Symbol.asyncDispose]();
  });
  const fetchFrom = (address: string, more = ''): Promise<{ exit_code: number; stdout: string }> =>
    api.exec(id, `curl -s -m 3 ${more} ${address}`);
  const addressOf = async (sandbox: string, what: string): Promise<string> =>
    (await api.exec(sandbox, what)).stdout.trim();
  const OWN = "ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1";
  const GATEWAY = "ip route show default | awk '{print $3}'";

  it("reaches public addresses through the host, under the host's address", async () => {
    const answer = await fetchFrom(`http://${PUBLIC_ADDRESS}:${PORT}/`);
    assert.deepEqual([answer.exit_code, answer.stdout], [0, `from ${HOST_PUBLIC_ADDRESS}`]);
  });

  it('reaches no private range, no other guest and no server of the host', async () => {
    const { port } = hostServer.address() as AddressInfo;
    const siblingAddress = await addressOf(sibling, OWN);
    const gateway = await addressOf(id, GATEWAY);
    const serves =
      'for i in $(seq 100); do curl -s -o /dev/null http://127.0.0.1:8000/ && echo yes && break; sleep 0.1; done';
    assert.equal(await addressOf(sibling, serves), 'yes', 'the sibling serves');
    const apiPort = new URL(api.service.address).port;
    const targets = [
      `http://${PRIVATE_ADDRESS}:${PORT}/`,
      `http://${HOST_PRIVATE_ADDRESS}:${port}/`,
      `http://${HOST_PUBLIC_ADDRESS}:${port}/`,
      `http://${gateway}:${port}/`,
      `http://${gateway}:${apiPort}/healthz`,
      `http://${siblingAddress}:8000/`,
      'http://169.254.169.254/latest/meta-data/',
      'http://224.0.0.1/',
    ];
    const answers = await Promise.all(targets.map((target) => fetchFrom(target)));
    const reached = targets.filter((_target, index) => answers[index]?.exit_code === 0);
    assert.deepEqual(reached, []);
  });

  it('also applies to a root that takes another address or uses IPv6', async () => {
    const spoofed = await api.exec(
      id,
      `ip addr add ${FREE_PRIVATE_ADDRESS}/32 dev eth0 && curl -s -m 3 --interface ${FREE_PRIVATE_ADDRESS} http://${PUBLIC_ADDRESS}:${PORT}/; echo "exit $?"; ip addr del ${FREE_PRIVATE_ADDRESS}/32 dev eth0; ip -6 route show default`,
    );
    assert.match(spoofed.stdout, /^exit [1-9]\d*\n$/u);
  });

  it('is configured before the first command runs', async () => {
    const { stdout } = await api.exec(id, 'cat /etc/resolv.conf; ip -4 -o addr show eth0; ip route');
    const [prefix = ''] = api.service.guestCidr.split('.0.0/', 1);
    assert.ok(stdout.includes(`nameserver ${prefix}.0.1\n`), stdout);
    assert.ok(stdout.includes(`default via ${prefix}.`), stdout);
  });
});
