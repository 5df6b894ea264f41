import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMPTY_FORM, toCreateOptions, toShownBody, toSnippet } from './create-form.ts';

test('an untouched form asks for the defaults only', () => {
  assert.deepEqual(toShownBody(EMPTY_FORM), {
    image: 'coppice/base:1',
    vcpus: 1,
    mem_mib: 1024,
    disk_mib: 4096,
    timeout: 300,
  });
});

test('names that are empty are left out, values may be empty', () => {
  const pairs = [
    { name: 'a', value: '' },
    { name: '', value: 'lost' },
  ];
  const options = toCreateOptions({ ...EMPTY_FORM, labels: pairs, env: pairs });
  assert.deepEqual([options.labels, options.env], [{ a: '' }, { a: '' }]);
});

test('a policy is a profile, rules, or none', () => {
  assert.equal(toCreateOptions({ ...EMPTY_FORM, network: 'profile:packages' }).networkProfile, 'packages');
  const rules = { ...EMPTY_FORM, network: 'rules', allow: 'a.example\n\n *.b.example , 1.2.3.4', deny: '' };
  assert.deepEqual(toCreateOptions(rules).network, { allow: ['a.example', '*.b.example', '1.2.3.4'] });
  assert.equal(toCreateOptions({ ...EMPTY_FORM, allow: 'a.example' }).network, undefined);
});

test('code that is shown has no value of a secret', () => {
  const form = {
    ...EMPTY_FORM,
    credentials: [
      { service: 'openai', secret: '', value: 'sk-canary' },
      { service: 'github', secret: 'stored', value: '' },
    ],
  };
  assert.deepEqual(toCreateOptions(form).credentials, { openai: 'sk-canary', github: { secret: 'stored' } });
  const shown = JSON.stringify(toSnippet(form));
  assert.ok(!shown.includes('sk-canary'), shown);
  assert.ok(shown.includes('stored'));
});
