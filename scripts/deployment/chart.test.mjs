import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { REPOSITORY } from '../setup/paths.mjs';
import { CASES } from './cases.mjs';
import { describeSources, renderedPath } from './chart-files.mjs';

const CONFIGURATION = readFileSync(join(REPOSITORY, 'docs/reference/configuration.md'), 'utf8');
const ENTRY_POINT = readFileSync(join(REPOSITORY, 'deploy/container/entrypoint.sh'), 'utf8');

/** @param {string} name */
function readRendered(name) {
  return JSON.parse(readFileSync(renderedPath(name), 'utf8'));
}

/**
 * @param {string} name of a case
 * @param {string} kind
 * @returns {any[]} manifests
 */
function listOf(name, kind) {
  return readRendered(name).manifests.filter((/** @type {any} */ manifest) => manifest.kind === kind);
}

/** @param {string} name of a case */
function podsOf(name) {
  const [control] = listOf(name, 'Deployment');
  const [runner] = listOf(name, 'DaemonSet');
  return { control: control.spec.template, runner: runner.spec.template };
}

for (const name of Object.keys(CASES)) {
  test(`Helm's engine and the types of Kubernetes have accepted the chart as it is now (${name})`, async () => {
    const remedy = 'the chart, its checker or a case has changed: run "node scripts/render-chart.mjs"';
    assert.deepEqual(readRendered(name).sources, await describeSources(), remedy);
  });

  test(`each variable of a container is a setting of the service or of the entry point (${name})`, () => {
    const { control, runner } = podsOf(name);
    const containers = [control, runner].flatMap(({ spec }) =>
      spec.containers.concat(spec.initContainers ?? []),
    );
    const names = containers.flatMap(({ env }) => env.map((/** @type {any} */ each) => each.name));
    assert.ok(names.length > 15, String(names));
    const unknown = names.filter(
      (each) =>
        !CONFIGURATION.includes(`- \`${each}\``) &&
        !ENTRY_POINT.includes(`{${each}:`) &&
        !['POD_IP', 'HOST_IP'].includes(each),
    );
    assert.deepEqual(unknown, []);
    for (const { args } of containers) assert.match(ENTRY_POINT, new RegExp(`^${args[0]}\\)`, 'mu'));
  });

  test(`a control has no rights, and a runner has no secret of controls (${name})`, () => {
    const { control, runner } = podsOf(name);
    const [container] = control.spec.containers;
    assert.equal(control.spec.securityContext.runAsNonRoot, true);
    assert.deepEqual(container.securityContext, {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'] },
      readOnlyRootFilesystem: true,
    });
    const { secret } = control.spec.volumes.find((/** @type {any} */ each) => each.name === 'secret');
    assert.ok(!JSON.stringify(runner).includes(`"${secret.secretName}"`));
    assert.doesNotMatch(JSON.stringify(runner), /DATABASE_URL|master\.key/u);
    const sources = JSON.stringify(container.envFrom ?? []);
    assert.ok(!sources.includes(`"${secret.secretName}"`), 'the master key would be a variable');
  });
}

test('only controls and the nodes of runners reach the internal listener', () => {
  const [{ spec }] = listOf('complete', 'NetworkPolicy');
  const { control } = podsOf('complete');
  assert.deepEqual(spec.policyTypes, ['Ingress']);
  const internal = spec.ingress.find((/** @type {any} */ rule) => rule.ports[0].port === 'internal');
  assert.deepEqual(
    internal.from.map((/** @type {any} */ peer) => peer.podSelector?.matchLabels ?? peer.ipBlock.cidr),
    [spec.podSelector.matchLabels, '10.0.0.0/16'],
  );
  for (const [label, value] of Object.entries(spec.podSelector.matchLabels))
    assert.equal(control.metadata.labels[label], value);
});

test('Services, budgets and controllers select the Pods that they are for, and name their ports', () => {
  for (const kind of ['Deployment', 'DaemonSet']) {
    const [{ spec }] = listOf('complete', kind);
    for (const [label, value] of Object.entries(spec.selector.matchLabels))
      assert.equal(spec.template.metadata.labels[label], value);
  }
  const { control, runner } = podsOf('complete');
  const ports = control.spec.containers[0].ports.map((/** @type {any} */ port) => port.name);
  const services = listOf('complete', 'Service');
  assert.deepEqual(new Set(services.map(({ spec }) => spec.ports[0].targetPort)), new Set(ports));
  for (const { spec } of services)
    for (const [label, value] of Object.entries(spec.selector))
      assert.equal(control.metadata.labels[label], value);
  const budgets = listOf('complete', 'PodDisruptionBudget').map(({ spec }) => spec.selector.matchLabels);
  const components = [control, runner].map(({ metadata }) => metadata.labels['app.kubernetes.io/component']);
  assert.deepEqual(
    budgets.map((labels) => labels['app.kubernetes.io/component']),
    components,
  );
});

test('a control that waits for PostgreSQL is not restarted, and one that ends may let requests end', () => {
  const { control, runner } = podsOf('complete');
  const [container] = control.spec.containers;
  assert.equal(container.readinessProbe.httpGet.path, '/healthz');
  assert.equal(container.readinessProbe.httpGet.scheme, 'HTTPS');
  assert.equal(container.livenessProbe.httpGet, undefined);
  const limits = readFileSync(join(REPOSITORY, 'packages/server/src/control/control-config.ts'), 'utf8');
  const drainMs = Number(/shutdownDeadlineMs: ([\d_]+)/u.exec(limits)?.[1]?.replaceAll('_', ''));
  assert.ok(control.spec.terminationGracePeriodSeconds * 1_000 >= 2 * drainMs, String(drainMs));
  assert.equal(runner.spec.hostNetwork, true, 'its address is stored when it joins');
});

test('an upgrade of the chart ends no VM', () => {
  const [{ spec }] = listOf('complete', 'DaemonSet');
  assert.equal(spec.updateStrategy.type, 'OnDelete');
  const devices = spec.template.spec.volumes.map((/** @type {any} */ volume) => volume.hostPath.path);
  assert.deepEqual(devices, ['/var/lib/coppice', '/run/coppice', '/dev/kvm', '/dev/net/tun']);
});

test('a runner in a container keeps the capabilities of its systemd unit', () => {
  const unit = readFileSync(join(REPOSITORY, 'deploy/coppice-runner.service'), 'utf8');
  const rights = /^CapabilityBoundingSet=(.+)$/mu.exec(unit)?.[1] ?? '';
  const expected = rights.replaceAll('CAP_', '').toLowerCase().split(' ');
  assert.deepEqual(/^RUNNER_CAPABILITIES=(.+)$/mu.exec(ENTRY_POINT)?.[1]?.split(','), expected);
});

test('the master key of a Secret that the chart makes survives the chart', () => {
  const [secret] = listOf('complete', 'Secret');
  assert.equal(secret.metadata.annotations['helm.sh/resource-policy'], 'keep');
  assert.equal(listOf('own-secret', 'Secret').length, 0);
});
