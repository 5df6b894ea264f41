export { MockService, type MockOptions, type SeenRequest } from './mock-service.ts';
export type { ExecHandler, MockCommand, MockCommandResult } from './mock-types.ts';
