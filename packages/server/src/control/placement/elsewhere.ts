import { AppError } from '@coppice/contract';
import { isControlId } from '../ownership/control-id.ts';

/** Another control can answer a request: see ../http/forwarding. */
export class ElsewhereError extends AppError {
  /** Id of a runner, of which the owner can answer, or of the control itself. */
  readonly at: string;
  /**
   * Why it cannot be done here, if that may change; answered to a request that was forwarded already. Always given with a control, to
   * which such a request is not sent.
   */
  readonly refusal: AppError | undefined;

  constructor(at: string, refusal?: AppError) {
    const message = isControlId(at)
      ? 'only another control can answer the request; try again'
      : 'the runner of the sandbox is not connected; try again';
    super('unavailable', message, isControlId(at) ? {} : { details: { runner_id: at } });
    this.at = at;
    this.refusal = refusal;
  }
}
