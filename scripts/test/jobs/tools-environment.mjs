/**
 * Returns the variables by which tests on VMs, benchmarks and the soak find what set-up prepared.
 * @param {Pick<import('../../setup/setup.mjs').SetupResult, 'service' | 'packagedPostgres' | 'objectServer' | 'pythonClient'>} tools
 * @returns {NodeJS.ProcessEnv}
 */
export function toolsEnvironment({ service, packagedPostgres, objectServer, pythonClient }) {
  return {
    COPPICE_TEST_SERVICE: service,
    COPPICE_TEST_POSTGRES_BIN: packagedPostgres,
    COPPICE_TEST_OBJECT_SERVER: objectServer,
    COPPICE_TEST_PYTHON_CLIENT: pythonClient,
  };
}

/**
 * Returns the variables by which unit tests find what set-up prepared.
 * @param {Pick<import('../../setup/setup.mjs').SetupResult, 'apiTests' | 'objectServer' | 'runtimes'>} tools
 * @returns {NodeJS.ProcessEnv}
 */
export function unitEnvironment({ apiTests, objectServer, runtimes }) {
  return {
    COPPICE_TEST_API_PYTHON: apiTests,
    COPPICE_TEST_OBJECT_SERVER: objectServer,
    COPPICE_TEST_RUNTIMES: runtimes,
  };
}
