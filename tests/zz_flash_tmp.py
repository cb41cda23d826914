import sys
sys.path[:0]=["/work/att/tests","/work/att"]
import test_cuda_attention as A
from graphdnn.engines.cuda.attention.hopper import ENGINE
A.ENGINE = ENGINE
import time, traceback
for kind in ("f16","bf16"):
    for name,(shape,fields) in A.CASES.items():
        t=time.time()
        if fields.get("scores")=="f16": fields={**fields,"scores":kind}
        g=A.attention(shape,kind,**fields)
        try:
            A.check(g,kind,0,A.values(g,keys=shape.keys)); print("ok",kind,name,f"{time.time()-t:.1f}",flush=True)
        except Exception as e:
            print("FAIL",kind,name,str(e)[:300],flush=True)
try:
    A.test_infinite_scores_and_rows_without_numbers(); print("ok inf")
except Exception as e: print("FAIL inf", str(e)[:500])
