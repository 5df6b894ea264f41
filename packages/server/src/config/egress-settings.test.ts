import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ConfigError } from './config-error.ts';
import { readEgress, REGISTRIES_FILE } from './egress-settings.ts';
import { EgressRules, type EgressSettings } from '../control/egress/egress-rules.ts';

const directory = mkdtempSync(join(tmpdir(), 'egress-settings-'));
after(() => rmSync(directory, { recursive: true }));

interface Files {
  profiles?: unknown;
  services?: unknown;
  registries?: unknown;
}

function read({ profiles, services, registries }: Files, openPrivateRanges: string[] = []): EgressSettings {
  const write = (name: string, content: unknown): string => {
    const path = join(directory, name);
    writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
    return path;
  };
  rmSync(join(directory, REGISTRIES_FILE), { force: true });
  if (registries !== undefined) write(REGISTRIES_FILE, { version: 1, registries });
  return readEgress(
    {
      COPPICE_OPEN_PRIVATE_RANGES: openPrivateRanges,
      COPPICE_NETWORK_PROFILES: profiles === undefined ? undefined : write('profiles.json', profiles),
      COPPICE_CREDENTIAL_SERVICES: services === undefined ? undefined : write('services.json', services),
    },
    directory,
  );
}

test('without files the built-in profiles and services apply', () => {
  const rules = new EgressRules(read({}));
  assert.equal(rules.listProfiles().length, 5);
  assert.equal(rules.findService('openai')?.host, 'api.openai.com');
});

test('profiles, services and registries of the operator are added', () => {
  const settings = read({
    profiles: { profiles: [{ name: 'office', allow: ['api.office.example', 'registry:npm'] }] },
    services: {
      services: [
        { name: 'office', host: 'api.office.example', authentication: { kind: 'header', header: 'x-key' } },
      ],
    },
    registries: { npm: ['npm.office.example'] },
  });
  const rules = new EgressRules(settings);
  const office = rules.listProfiles().find(({ name }) => name === 'office');
  assert.deepEqual(office?.allow, ['api.office.example', 'npm.office.example']);
  assert.equal(rules.findService('office')?.host, 'api.office.example');
});

test('registries with missing hosts are listed as incomplete, and a file of an older set-up is readable', () => {
  const registries = { crates: ['index.example'] };
  assert.deepEqual(read({ registries }).incompleteRegistries, []);
  const content = { version: 1, rules: 2, registries, incomplete: ['crates'], standards: {} };
  writeFileSync(join(directory, REGISTRIES_FILE), JSON.stringify(content));
  const variables = {
    COPPICE_OPEN_PRIVATE_RANGES: [],
    COPPICE_NETWORK_PROFILES: undefined,
    COPPICE_CREDENTIAL_SERVICES: undefined,
  };
  const settings = readEgress(variables, directory);
  assert.deepEqual([settings.registries, settings.incompleteRegistries], [registries, ['crates']]);
});

test('an error names the variable, the file and the place in it', () => {
  const refused: [Files, string[], RegExp][] = [
    [{ profiles: '{' }, [], /^COPPICE_NETWORK_PROFILES: .*profiles\.json cannot be read: /u],
    [{ profiles: [] }, [], /^COPPICE_NETWORK_PROFILES: .*profiles\.json: /u],
    [
      { profiles: { profiles: [{ name: 'a', allow: ['https://a.example'] }] } },
      [],
      /^COPPICE_NETWORK_PROFILES: .*profiles\.json: .*profiles\[0\]\.allow\[0\]: "https/u,
    ],
    [
      { profiles: { profiles: [{ name: 'locked-down' }] } },
      [],
      /profiles\[0\]\.name: "locked-down" is reserved by the service/u,
    ],
    [{ services: { services: [{ name: 'openai' }] } }, [], /^COPPICE_CREDENTIAL_SERVICES: .*services\[0\]/u],
    [{ registries: 5 }, [], /package-registries\.json is not of this version: run "npm run setup" again/u],
    [{}, ['ten'], /^COPPICE_OPEN_PRIVATE_RANGES: /u],
  ];
  for (const [files, ranges, message] of refused)
    assert.throws(
      () => read(files, ranges),
      (error) => error instanceof ConfigError && message.test(error.message),
      String(message),
    );
});
