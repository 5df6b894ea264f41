import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildServiceCatalogue } from '../../lib/credential-services/service-catalogue.ts';
import { buildGuestEnvironment, buildPlaceholder } from '../../lib/credential-services/placeholders.ts';
import { parseProxyTarget } from './request/proxy-target.ts';

const { services } = buildServiceCatalogue();
const all = [...services.values()];

test('the environment has the variables that the clients of each service read', () => {
  const environment = buildGuestEnvironment({ sandboxId: 'run01', services: all, port: 8123 });
  const base = (name: string): string => `http://169.254.169.254:8123/proxy/${name}`;
  assert.deepEqual(environment, {
    OPENAI_API_KEY: 'sk-coppice-placeholder-run01-openai',
    OPENAI_BASE_URL: base('openai'),
    ANTHROPIC_API_KEY: 'sk-ant-coppice-placeholder-run01-anthropic',
    ANTHROPIC_BASE_URL: base('anthropic'),
    GOOGLE_API_KEY: 'coppice-placeholder-run01-google',
    GEMINI_API_KEY: 'coppice-placeholder-run01-google',
    GOOGLE_BASE_URL: base('google'),
    GOOGLE_GEMINI_BASE_URL: base('google'),
    GEMINI_BASE_URL: base('google'),
    GITHUB_API_KEY: 'coppice-placeholder-run01-github',
    GITHUB_TOKEN: 'coppice-placeholder-run01-github',
    GH_TOKEN: 'coppice-placeholder-run01-github',
    GITHUB_BASE_URL: base('github'),
    GITHUB_API_URL: base('github'),
    HUGGINGFACE_API_KEY: 'hf_coppice-placeholder-run01-huggingface',
    HF_TOKEN: 'hf_coppice-placeholder-run01-huggingface',
    HUGGINGFACE_BASE_URL: base('huggingface'),
    HF_INFERENCE_ENDPOINT: base('huggingface'),
    HF_HUB_DISABLE_IMPLICIT_TOKEN: '1',
  });
});

test('no variables are set for services without a grant', () => {
  assert.deepEqual(buildGuestEnvironment({ sandboxId: 'run01', services: [], port: 1 }), {});
});

test('each sandbox has its own placeholder for each service', () => {
  const placeholders = ['run01', 'run02'].flatMap((id) =>
    all.map((service) => buildPlaceholder(id, service)),
  );
  assert.equal(new Set(placeholders).size, 10);
});

test('the base URL reaches the service with any path and query', () => {
  for (const { name } of all) {
    const { pathname } = new URL(
      buildGuestEnvironment({ sandboxId: 'r', services: all, port: 1 })[`${name.toUpperCase()}_BASE_URL`] ??
        '',
    );
    const target = parseProxyTarget(`${pathname}/a/b?c=d?e`);
    assert.deepEqual(target, { ok: true, value: { service: name, rawPath: '/a/b', rawQuery: 'c=d?e' } });
  }
  assert.deepEqual(parseProxyTarget('/proxy/openai'), {
    ok: true,
    value: { service: 'openai', rawPath: '', rawQuery: undefined },
  });
});

test('other targets are refused', () => {
  const refused = [
    '',
    '/',
    '/proxy',
    '/proxy/',
    '/proxy//x',
    '/proxy/?a',
    'http://169.254.169.254/proxy/openai',
    '*',
    '/Proxy/openai',
    '//proxy/openai',
    '/proxy/../openai/x',
    '/proxy/open%61i',
    '/proxy/OPENAI',
    `/proxy/openai/${'a'.repeat(20_000)}`,
  ];
  for (const target of refused) assert.ok(!parseProxyTarget(target).ok, target);
});
