import { AppError } from '@coppice/contract';

/** A request needs a runner of another control, which can answer it: see ../http/forwarding. */
export class ElsewhereError extends AppError {
  readonly runnerId: string;
  /** Why it cannot be done here, if that may change; answered to a request that was forwarded already. */
  readonly refusal: AppError | undefined;

  constructor(runnerId: string, refusal?: AppError) {
    super('unavailable', 'the runner of the sandbox is not connected; try again', {
      details: { runner_id: runnerId },
    });
    this.runnerId = runnerId;
    this.refusal = refusal;
  }
}
