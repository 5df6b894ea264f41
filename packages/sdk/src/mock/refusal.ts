import { CoppiceError } from '../transport/errors.ts';

/**
 * Returns the error for what the mock does not do. It is thrown by `fetch` instead of being an answer, so that no test
 * takes it for an error of the service.
 */
export function refuse(what: string): CoppiceError {
  return new CoppiceError(`the mock of @coppice/sdk does not have ${what}: test this with a real service`, {
    status: 0,
    code: 'not_mocked',
  });
}
