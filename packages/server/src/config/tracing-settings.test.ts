import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError } from './config-error.ts';
import { selectSettings } from './default-paths.mjs';
import { Settings } from './settings.ts';
import { readTracing } from './tracing-settings.ts';

const ENDPOINT = 'http://127.0.0.1:4318';

const read = (environment: Record<string, string>) => readTracing(Settings.parse(environment));

const readOn = (environment: Record<string, string>) => {
  const config = read({ OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, ...environment });
  assert.ok(config);
  return config;
};

test('without an endpoint there are no traces, and the other variables are not looked at', () => {
  assert.equal(read({}), undefined);
  assert.equal(read({ OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }), undefined);
  assert.equal(read({ OTEL_TRACES_SAMPLER: 'nonsense', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }), undefined);
});

test('an endpoint alone suffices', () => {
  assert.deepEqual(readOn({}), {
    url: `${ENDPOINT}/v1/traces`,
    headers: {},
    resource: {},
    sampler: { ratio: 1, followsCaller: true },
    batchDelayMs: 5000,
  });
});

test('the path of traces is appended to the common endpoint only', () => {
  const urls: Record<string, string> = {
    'https://collector.test': 'https://collector.test/v1/traces',
    'https://collector.test/': 'https://collector.test/v1/traces',
    'https://collector.test/otlp/': 'https://collector.test/otlp/v1/traces',
  };
  for (const [endpoint, url] of Object.entries(urls))
    assert.equal(readOn({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }).url, url);
  const own = 'https://collector.test/own';
  assert.equal(readOn({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: own }).url, own);
});

test('traces are switched off by the standard variables', () => {
  for (const off of [{ OTEL_SDK_DISABLED: 'TRUE' }, { OTEL_TRACES_EXPORTER: 'none' }])
    assert.equal(read({ OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, ...off }), undefined);
  assert.ok(readOn({ OTEL_SDK_DISABLED: 'false', OTEL_TRACES_EXPORTER: 'otlp' }));
});

test('headers and attributes are pairs with percent-encoded values, and those for traces win', () => {
  const { headers, resource, serviceName } = readOn({
    OTEL_EXPORTER_OTLP_HEADERS: 'x-unused=1',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'authorization=Bearer%20a=b, x-team = ops,',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=b%C3%A4r,k=v',
    OTEL_SERVICE_NAME: 'boxes',
  });
  assert.deepEqual(headers, { authorization: 'Bearer a=b', 'x-team': 'ops' });
  assert.deepEqual(resource, { 'deployment.environment.name': 'bär', k: 'v' });
  assert.equal(serviceName, 'boxes');
});

test('samplers have their standard names', () => {
  const sampler = (name: string, argument?: string) =>
    readOn({
      OTEL_TRACES_SAMPLER: name,
      ...(argument === undefined ? {} : { OTEL_TRACES_SAMPLER_ARG: argument }),
    }).sampler;
  assert.deepEqual(sampler('always_on', '0.5'), { ratio: 1, followsCaller: false });
  assert.deepEqual(sampler('always_off'), { ratio: 0, followsCaller: false });
  assert.deepEqual(sampler('traceidratio', '0.25'), { ratio: 0.25, followsCaller: false });
  assert.deepEqual(sampler('parentbased_traceidratio'), { ratio: 1, followsCaller: true });
  assert.deepEqual(sampler('parentbased_always_off'), { ratio: 0, followsCaller: true });
});

test('an invalid variable is refused with its name and the remedy, and without its value', () => {
  const secret = 'hush';
  const refused: [name: string, value: string, remedy: RegExp][] = [
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318', /such as http/u],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', `http://user:${secret}@collector`, /set OTEL_EXPORTER_OTLP_HEADERS/u],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'ftp://collector', /such as http/u],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', /usually 4318/u],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json', /http\/protobuf/u],
    ['OTEL_EXPORTER_OTLP_HEADERS', secret, /name=value/u],
    ['OTEL_EXPORTER_OTLP_HEADERS', `a b=${secret}`, /name=value/u],
    ['OTEL_EXPORTER_OTLP_HEADERS', `a=${secret}%0A`, /name=value/u],
    ['OTEL_EXPORTER_OTLP_TRACES_HEADERS', `a=${secret}%`, /%25/u],
    ['OTEL_EXPORTER_OTLP_CERTIFICATE', 'ca.pem', /absolute path/u],
    ['OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE', '/nowhere/ca.pem', /readable/u],
    ['OTEL_RESOURCE_ATTRIBUTES', '=v', /name=value/u],
    ['OTEL_TRACES_EXPORTER', 'zipkin', /otlp or none/u],
    ['OTEL_TRACES_SAMPLER', 'half', /traceidratio/u],
    ['OTEL_TRACES_SAMPLER_ARG', '2', /from 0 to 1/u],
    ['OTEL_TRACES_SAMPLER_ARG', 'half', /from 0 to 1/u],
    ['OTEL_BSP_SCHEDULE_DELAY', '0', /milliseconds/u],
  ];
  for (const [name, value, remedy] of refused) {
    assert.throws(
      () => readOn({ [name]: value }),
      (error) => {
        assert.ok(error instanceof ConfigError, name);
        assert.match(error.message, new RegExp(`^${name}: `, 'u'));
        assert.match(error.message, remedy);
        return !error.message.includes(secret);
      },
      `${name}=${value}`,
    );
  }
});

test('another service on the machine does not send to the collector of the machine’s own', () => {
  const file = { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, COPPICE_LOG_LEVEL: 'warn' };
  assert.deepEqual(selectSettings(file, { COPPICE_DATA_DIR: '/srv/other' }), { COPPICE_LOG_LEVEL: 'warn' });
  assert.deepEqual(selectSettings(file, {}), file);
});
