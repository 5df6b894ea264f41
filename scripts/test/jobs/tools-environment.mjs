/**
 * Returns the variables by which tests on VMs, benchmarks and the soak find what set-up prepared.
 * @param {Pick<import('../../setup/setup.mjs').SetupResult, 'service' | 'packagedPostgres'>} tools
 * @returns {NodeJS.ProcessEnv}
 */
export function toolsEnvironment({ service, packagedPostgres }) {
  return { COPPICE_TEST_SERVICE: service, COPPICE_TEST_POSTGRES_BIN: packagedPostgres };
}
