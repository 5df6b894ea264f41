import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';
import { REPOSITORY } from '../setup/paths.mjs';

const read = (/** @type {string} */ path) => readFileSync(join(REPOSITORY, path), 'utf8');
const { services, volumes } = parse(read('deploy/compose/compose.yaml'), { merge: true });

test('every variable of a Coppice container is a setting of the service or of the entry point', () => {
  const documented = read('docs/reference/configuration.md');
  const entryPoint = read('deploy/container/entrypoint.sh');
  const names = ['control-1', 'control-2', 'token', 'runner'].flatMap((name) =>
    Object.keys(services[name].environment),
  );
  assert.ok(names.length > 20);
  const unknown = names.filter(
    (name) =>
      !name.startsWith('AWS_') && !documented.includes(`- \`${name}\``) && !entryPoint.includes(`{${name}:`),
  );
  assert.deepEqual(unknown, []);
});

test('the runner has neither the database nor the master key', () => {
  assert.equal(services.runner.environment.DATABASE_URL, undefined);
  assert.ok(!JSON.stringify(services.runner.volumes).includes('secrets'));
});

test('the ports of the trial are open on loopback alone', () => {
  const ports = Object.values(services).flatMap((service) => service.ports ?? []);
  assert.deepEqual(ports, ['127.0.0.1:8080:8080', '127.0.0.1:8081:8080']);
});

test('services wait only for services that exist, and mount only volumes that exist', () => {
  for (const service of Object.values(services)) {
    for (const name of Object.keys(service.depends_on ?? {})) assert.ok(services[name], name);
    for (const mount of service.volumes ?? []) assert.ok(mount.split(':')[0] in volumes, mount);
  }
});
