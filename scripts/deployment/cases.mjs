/** The values with which the chart is rendered for its test, as those of `helm template --set`. */
const ALL = [
  'image.repository=registry.example.com/coppice',
  'objectStore=s3://coppice/objects?endpoint=https://s3.example.com',
  'networkPolicy.runnerCidrs[0]=10.0.0.0/16',
];

/** @type {Readonly<Record<string, readonly string[]>>} by the name of the file with the result */
export const CASES = {
  'own-secret': [...ALL, 'secret.existing=installation'],
  complete: [
    ...ALL,
    'secret.databaseUrl=postgres://coppice@postgres/coppice',
    'secret.masterKey=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=', // "0123…", for the test alone
    'secret.extra.COPPICE_METRICS_TOKEN=0123456789abcdef',
    'objectStoreSecret=s3',
    'settings.COPPICE_REGION=eu',
    'control.tlsSecret=tls',
    'control.settings.COPPICE_LOG_LEVEL=debug',
    'networkPolicy.apiFrom[0].namespaceSelector.matchLabels.name=ingress',
    'runner.tolerations[0].key=sandboxes',
    'runner.tolerations[0].operator=Exists',
    'imagePullSecrets[0].name=registry',
  ],
};
