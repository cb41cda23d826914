"""The 171 functions: name | first release | section of the manual | family | alias of | parameters | statuses.

A parameter is ``name:kind``. ``>`` before the name: a C output pointer, which is returned instead. Kinds are C types
without ``cudnn`` and ``_t``; ``data`` is memory that is read, ``out`` written, ``inout`` blended; ``?`` may be null,
``=`` may be left out. 5.1 stands for 5.1 and earlier. Lines that begin with a space continue the one before.
"""

from __future__ import annotations

TEXT = """\
cudnnGetVersion | 5.1 | 4.1 | handle | - | - | -
cudnnGetErrorString | 5.1 | 4.2 | handle | - | status:Status | -
cudnnGetProperty | 6.0 | - | handle | - | type:libraryPropertyType >value:ints | INVALID_VALUE
cudnnCreate | 5.1 | 4.3 | handle | - | >handle:Handle | NOT_INITIALIZED ALLOC_FAILED BAD_PARAM ARCH_MISMATCH
  INTERNAL_ERROR LICENSE_ERROR
cudnnDestroy | 5.1 | 4.4 | handle | - | handle:Handle | NOT_INITIALIZED
cudnnSetStream | 5.1 | 4.5 | handle | - | handle:Handle streamId:cudaStream | BAD_PARAM MAPPING_ERROR
cudnnGetStream | 5.1 | 4.6 | handle | - | handle:Handle >streamId:cudaStream | BAD_PARAM
cudnnCreateTensorDescriptor | 5.1 | 4.7 | tensor | - | >tensorDesc:TensorDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetTensor4dDescriptor | 5.1 | 4.8 | tensor | - | tensorDesc:TensorDescriptor format:TensorFormat
  dataType:DataType n:int c:int h:int w:int | BAD_PARAM NOT_SUPPORTED
cudnnSetTensor4dDescriptorEx | 5.1 | 4.9 | tensor | - | tensorDesc:TensorDescriptor dataType:DataType n:int c:int
  h:int w:int nStride:int cStride:int hStride:int wStride:int | BAD_PARAM NOT_SUPPORTED
cudnnGetTensor4dDescriptor | 5.1 | 4.10 | tensor | - | tensorDesc:TensorDescriptor >dataType:DataType >n:int >c:int
  >h:int >w:int >nStride:int >cStride:int >hStride:int >wStride:int | -
cudnnSetTensorNdDescriptor | 5.1 | 4.11 | tensor | - | tensorDesc:TensorDescriptor dataType:DataType nbDims:int
  dimA:ints strideA:ints | BAD_PARAM NOT_SUPPORTED
cudnnSetTensorNdDescriptorEx | 6.0 | - | tensor | - | tensorDesc:TensorDescriptor format:TensorFormat
  dataType:DataType nbDims:int dimA:ints | BAD_PARAM NOT_SUPPORTED
cudnnGetTensorNdDescriptor | 5.1 | 4.12 | tensor | - | tensorDesc:TensorDescriptor nbDimsRequested:int
  >dataType:DataType >nbDims:int >dimA:ints >strideA:ints | BAD_PARAM
cudnnGetTensorSizeInBytes | 6.0 | - | tensor | - | tensorDesc:TensorDescriptor >size:size | BAD_PARAM
cudnnDestroyTensorDescriptor | 5.1 | 4.13 | tensor | - | tensorDesc:TensorDescriptor | -
cudnnTransformTensor | 5.1 | 4.14 | tensor | - | handle:Handle alpha:scalar xDesc:TensorDescriptor x:data beta:scalar
  yDesc:TensorDescriptor y:inout | BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnAddTensor | 5.1 | 4.15 | tensor | - | handle:Handle alpha:scalar aDesc:TensorDescriptor A:data beta:scalar
  cDesc:TensorDescriptor C:inout | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnCreateOpTensorDescriptor | 5.1 | - | optensor | - | >opTensorDesc:OpTensorDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetOpTensorDescriptor | 5.1 | - | optensor | - | opTensorDesc:OpTensorDescriptor opTensorOp:OpTensorOp
  opTensorCompType:DataType opTensorNanOpt:NanPropagation | BAD_PARAM
cudnnGetOpTensorDescriptor | 5.1 | - | optensor | - | opTensorDesc:OpTensorDescriptor >opTensorOp:OpTensorOp
  >opTensorCompType:DataType >opTensorNanOpt:NanPropagation | BAD_PARAM
cudnnDestroyOpTensorDescriptor | 5.1 | - | optensor | - | opTensorDesc:OpTensorDescriptor | -
cudnnOpTensor | 5.1 | 4.16 | optensor | - | handle:Handle opTensorDesc:OpTensorDescriptor alpha1:scalar
  aDesc:TensorDescriptor A:data alpha2:scalar bDesc:TensorDescriptor B:data beta:scalar cDesc:TensorDescriptor C:inout
  | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnCreateReduceTensorDescriptor | 6.0 | - | reduce | - | >reduceTensorDesc:ReduceTensorDescriptor | ALLOC_FAILED
  BAD_PARAM
cudnnSetReduceTensorDescriptor | 6.0 | - | reduce | - | reduceTensorDesc:ReduceTensorDescriptor
  reduceTensorOp:ReduceTensorOp reduceTensorCompType:DataType reduceTensorNanOpt:NanPropagation
  reduceTensorIndices:ReduceTensorIndices reduceTensorIndicesType:IndicesType | BAD_PARAM
cudnnGetReduceTensorDescriptor | 6.0 | - | reduce | - | reduceTensorDesc:ReduceTensorDescriptor
  >reduceTensorOp:ReduceTensorOp >reduceTensorCompType:DataType >reduceTensorNanOpt:NanPropagation
  >reduceTensorIndices:ReduceTensorIndices >reduceTensorIndicesType:IndicesType | BAD_PARAM
cudnnDestroyReduceTensorDescriptor | 6.0 | - | reduce | - | reduceTensorDesc:ReduceTensorDescriptor | -
cudnnGetReductionIndicesSize | 6.0 | - | reduce | - | handle:Handle reduceTensorDesc:ReduceTensorDescriptor
  aDesc:TensorDescriptor cDesc:TensorDescriptor >sizeInBytes:size | BAD_PARAM
cudnnGetReductionWorkspaceSize | 6.0 | - | reduce | - | handle:Handle reduceTensorDesc:ReduceTensorDescriptor
  aDesc:TensorDescriptor cDesc:TensorDescriptor >sizeInBytes:size | BAD_PARAM
cudnnReduceTensor | 6.0 | - | reduce | - | handle:Handle reduceTensorDesc:ReduceTensorDescriptor indices:?out
  indicesSizeInBytes:size workspace:workspace workspaceSizeInBytes:size alpha:scalar aDesc:TensorDescriptor A:data
  beta:scalar cDesc:TensorDescriptor C:inout | BAD_PARAM INVALID_VALUE NOT_SUPPORTED EXECUTION_FAILED
cudnnSetTensor | 5.1 | 4.17 | tensor | - | handle:Handle yDesc:TensorDescriptor y:out valuePtr:scalar | BAD_PARAM
  EXECUTION_FAILED NOT_SUPPORTED
cudnnScaleTensor | 5.1 | 4.18 | tensor | - | handle:Handle yDesc:TensorDescriptor y:inout alpha:scalar | BAD_PARAM
  EXECUTION_FAILED NOT_SUPPORTED
cudnnCreateFilterDescriptor | 5.1 | 4.19 | filter | - | >filterDesc:FilterDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetFilter4dDescriptor | 5.1 | 4.20 | filter | - | filterDesc:FilterDescriptor dataType:DataType
  format:TensorFormat k:int c:int h:int w:int | BAD_PARAM
cudnnSetFilter4dDescriptor_v3 | 5.1 | 4.22 | filter | - | filterDesc:FilterDescriptor dataType:DataType k:int c:int
  h:int w:int | BAD_PARAM
cudnnSetFilter4dDescriptor_v4 | 5.1 | 4.24 | filter | cudnnSetFilter4dDescriptor | filterDesc:FilterDescriptor
  dataType:DataType format:TensorFormat k:int c:int h:int w:int | BAD_PARAM
cudnnGetFilter4dDescriptor | 5.1 | 4.21 | filter | - | filterDesc:FilterDescriptor >dataType:DataType
  >format:TensorFormat >k:int >c:int >h:int >w:int | -
cudnnGetFilter4dDescriptor_v3 | 5.1 | 4.23 | filter | - | filterDesc:FilterDescriptor >dataType:DataType >k:int >c:int
  >h:int >w:int | -
cudnnGetFilter4dDescriptor_v4 | 5.1 | 4.25 | filter | cudnnGetFilter4dDescriptor | filterDesc:FilterDescriptor
  >dataType:DataType >format:TensorFormat >k:int >c:int >h:int >w:int | -
cudnnSetFilterNdDescriptor | 5.1 | 4.26 | filter | - | filterDesc:FilterDescriptor dataType:DataType
  format:TensorFormat nbDims:int filterDimA:ints | BAD_PARAM NOT_SUPPORTED
cudnnSetFilterNdDescriptor_v3 | 5.1 | 4.28 | filter | - | filterDesc:FilterDescriptor dataType:DataType nbDims:int
  filterDimA:ints | BAD_PARAM NOT_SUPPORTED
cudnnSetFilterNdDescriptor_v4 | 5.1 | 4.30 | filter | cudnnSetFilterNdDescriptor | filterDesc:FilterDescriptor
  dataType:DataType format:TensorFormat nbDims:int filterDimA:ints | BAD_PARAM NOT_SUPPORTED
cudnnGetFilterNdDescriptor | 5.1 | 4.27 | filter | - | filterDesc:FilterDescriptor nbDimsRequested:int
  >dataType:DataType >format:TensorFormat >nbDims:int >filterDimA:ints | BAD_PARAM
cudnnGetFilterNdDescriptor_v3 | 5.1 | 4.29 | filter | - | filterDesc:FilterDescriptor nbDimsRequested:int
  >dataType:DataType >nbDims:int >filterDimA:ints | BAD_PARAM
cudnnGetFilterNdDescriptor_v4 | 5.1 | 4.31 | filter | cudnnGetFilterNdDescriptor | filterDesc:FilterDescriptor
  nbDimsRequested:int >dataType:DataType >format:TensorFormat >nbDims:int >filterDimA:ints | BAD_PARAM
cudnnDestroyFilterDescriptor | 5.1 | 4.32 | filter | - | filterDesc:FilterDescriptor | -
cudnnCreateConvolutionDescriptor | 5.1 | 4.33 | conv | - | >convDesc:ConvolutionDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetConvolution2dDescriptor | 5.1 | 4.34 | conv | - | convDesc:ConvolutionDescriptor pad_h:int pad_w:int u:int
  v:int dilation_h:int dilation_w:int mode:ConvolutionMode computeType:DataType= | BAD_PARAM NOT_SUPPORTED
cudnnGetConvolution2dDescriptor | 5.1 | 4.35 | conv | - | convDesc:ConvolutionDescriptor >pad_h:int >pad_w:int >u:int
  >v:int >dilation_h:int >dilation_w:int >mode:ConvolutionMode >computeType:DataType | BAD_PARAM
cudnnGetConvolution2dForwardOutputDim | 5.1 | 4.36 | conv | - | convDesc:ConvolutionDescriptor
  inputTensorDesc:TensorDescriptor filterDesc:FilterDescriptor >n:int >c:int >h:int >w:int | BAD_PARAM
cudnnSetConvolutionNdDescriptor | 5.1 | 4.37 | conv | - | convDesc:ConvolutionDescriptor arrayLength:int padA:ints
  filterStrideA:ints dilationA:ints mode:ConvolutionMode computeType:DataType | BAD_PARAM NOT_SUPPORTED
cudnnGetConvolutionNdDescriptor | 5.1 | 4.38 | conv | - | convDesc:ConvolutionDescriptor arrayLengthRequested:int
  >arrayLength:int >padA:ints >strideA:ints >dilationA:ints >mode:ConvolutionMode >computeType:DataType | BAD_PARAM
  NOT_SUPPORTED
cudnnGetConvolutionNdForwardOutputDim | 5.1 | 4.39 | conv | - | convDesc:ConvolutionDescriptor
  inputTensorDesc:TensorDescriptor filterDesc:FilterDescriptor nbDims:int >tensorOuputDimA:ints | BAD_PARAM
cudnnDestroyConvolutionDescriptor | 5.1 | 4.40 | conv | - | convDesc:ConvolutionDescriptor | -
cudnnFindConvolutionForwardAlgorithm | 5.1 | 4.41 | conv | - | handle:Handle xDesc:TensorDescriptor
  wDesc:FilterDescriptor convDesc:ConvolutionDescriptor yDesc:TensorDescriptor requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs | ALLOC_FAILED BAD_PARAM INTERNAL_ERROR
cudnnFindConvolutionForwardAlgorithmEx | 5.1 | 4.42 | conv | - | handle:Handle xDesc:TensorDescriptor x:data
  wDesc:FilterDescriptor w:data convDesc:ConvolutionDescriptor yDesc:TensorDescriptor y:inout requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs workSpace:workspace workSpaceSizeInBytes:size | BAD_PARAM INTERNAL_ERROR
cudnnGetConvolutionForwardAlgorithm | 5.1 | 4.43 | conv | - | handle:Handle xDesc:TensorDescriptor
  wDesc:FilterDescriptor convDesc:ConvolutionDescriptor yDesc:TensorDescriptor preference:ConvolutionFwdPreference
  memoryLimitInBytes:size >algo:ConvolutionFwdAlgo | BAD_PARAM
cudnnGetConvolutionForwardWorkspaceSize | 5.1 | 4.44 | conv | - | handle:Handle xDesc:TensorDescriptor
  wDesc:FilterDescriptor convDesc:ConvolutionDescriptor yDesc:TensorDescriptor algo:ConvolutionFwdAlgo
  >sizeInBytes:size | BAD_PARAM NOT_SUPPORTED
cudnnConvolutionForward | 5.1 | 4.45 | conv | - | handle:Handle alpha:scalar xDesc:TensorDescriptor x:data
  wDesc:FilterDescriptor w:data convDesc:ConvolutionDescriptor algo:ConvolutionFwdAlgo workSpace:workspace
  workSpaceSizeInBytes:size beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM NOT_SUPPORTED MAPPING_ERROR
  EXECUTION_FAILED ARCH_MISMATCH
cudnnConvolutionBiasActivationForward | 6.0 | - | conv | - | handle:Handle alpha1:scalar xDesc:TensorDescriptor x:data
  wDesc:FilterDescriptor w:data convDesc:ConvolutionDescriptor algo:ConvolutionFwdAlgo workSpace:workspace
  workSpaceSizeInBytes:size alpha2:scalar zDesc:TensorDescriptor z:data biasDesc:TensorDescriptor bias:data
  activationDesc:ActivationDescriptor yDesc:TensorDescriptor y:out | BAD_PARAM NOT_SUPPORTED MAPPING_ERROR
  EXECUTION_FAILED ARCH_MISMATCH
cudnnConvolutionBackwardBias | 5.1 | 4.46 | conv | - | handle:Handle alpha:scalar dyDesc:TensorDescriptor dy:data
  beta:scalar dbDesc:TensorDescriptor db:inout | BAD_PARAM NOT_SUPPORTED
cudnnFindConvolutionBackwardFilterAlgorithm | 5.1 | 4.47 | conv | - | handle:Handle xDesc:TensorDescriptor
  dyDesc:TensorDescriptor convDesc:ConvolutionDescriptor dwDesc:FilterDescriptor requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs | ALLOC_FAILED BAD_PARAM INTERNAL_ERROR
cudnnFindConvolutionBackwardFilterAlgorithmEx | 5.1 | 4.48 | conv | - | handle:Handle xDesc:TensorDescriptor x:data
  dyDesc:TensorDescriptor y:data convDesc:ConvolutionDescriptor dwDesc:FilterDescriptor dw:inout
  requestedAlgoCount:int >returnedAlgoCount:int >perfResults:perfs workSpace:workspace workSpaceSizeInBytes:size |
  BAD_PARAM INTERNAL_ERROR
cudnnGetConvolutionBackwardFilterAlgorithm | 5.1 | 4.49 | conv | - | handle:Handle xDesc:TensorDescriptor
  dyDesc:TensorDescriptor convDesc:ConvolutionDescriptor dwDesc:FilterDescriptor
  preference:ConvolutionBwdFilterPreference memoryLimitInBytes:size >algo:ConvolutionBwdFilterAlgo | BAD_PARAM
cudnnGetConvolutionBackwardFilterWorkspaceSize | 5.1 | 4.50 | conv | - | handle:Handle xDesc:TensorDescriptor
  dyDesc:TensorDescriptor convDesc:ConvolutionDescriptor gradDesc:FilterDescriptor algo:ConvolutionBwdFilterAlgo
  >sizeInBytes:size | BAD_PARAM NOT_SUPPORTED
cudnnConvolutionBackwardFilter | 5.1 | 4.51 | conv | - | handle:Handle alpha:scalar xDesc:TensorDescriptor x:data
  dyDesc:TensorDescriptor dy:data convDesc:ConvolutionDescriptor algo:ConvolutionBwdFilterAlgo workSpace:workspace
  workSpaceSizeInBytes:size beta:scalar dwDesc:FilterDescriptor dw:inout | BAD_PARAM NOT_SUPPORTED MAPPING_ERROR
  EXECUTION_FAILED
cudnnFindConvolutionBackwardDataAlgorithm | 5.1 | 4.52 | conv | - | handle:Handle wDesc:FilterDescriptor
  dyDesc:TensorDescriptor convDesc:ConvolutionDescriptor dxDesc:TensorDescriptor requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs | ALLOC_FAILED BAD_PARAM INTERNAL_ERROR
cudnnFindConvolutionBackwardDataAlgorithmEx | 5.1 | 4.53 | conv | - | handle:Handle wDesc:FilterDescriptor w:data
  dyDesc:TensorDescriptor dy:data convDesc:ConvolutionDescriptor dxDesc:TensorDescriptor dx:inout
  requestedAlgoCount:int >returnedAlgoCount:int >perfResults:perfs workSpace:workspace workSpaceSizeInBytes:size |
  BAD_PARAM INTERNAL_ERROR
cudnnGetConvolutionBackwardDataAlgorithm | 5.1 | 4.54 | conv | - | handle:Handle wDesc:FilterDescriptor
  dyDesc:TensorDescriptor convDesc:ConvolutionDescriptor dxDesc:TensorDescriptor
  preference:ConvolutionBwdDataPreference memoryLimitInBytes:size >algo:ConvolutionBwdDataAlgo | BAD_PARAM
cudnnGetConvolutionBackwardDataWorkspaceSize | 5.1 | 4.55 | conv | - | handle:Handle wDesc:FilterDescriptor
  dyDesc:TensorDescriptor convDesc:ConvolutionDescriptor dxDesc:TensorDescriptor algo:ConvolutionBwdDataAlgo
  >sizeInBytes:size | BAD_PARAM NOT_SUPPORTED
cudnnConvolutionBackwardData | 5.1 | 4.56 | conv | - | handle:Handle alpha:scalar wDesc:FilterDescriptor w:data
  dyDesc:TensorDescriptor dy:data convDesc:ConvolutionDescriptor algo:ConvolutionBwdDataAlgo workSpace:workspace
  workSpaceSizeInBytes:size beta:scalar dxDesc:TensorDescriptor dx:inout | BAD_PARAM NOT_SUPPORTED MAPPING_ERROR
  EXECUTION_FAILED
cudnnIm2Col | 5.1 | - | conv | - | handle:Handle xDesc:TensorDescriptor x:data wDesc:FilterDescriptor
  convDesc:ConvolutionDescriptor colBuffer:out | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnSoftmaxForward | 5.1 | 4.57 | softmax | - | handle:Handle algo:SoftmaxAlgorithm mode:SoftmaxMode alpha:scalar
  xDesc:TensorDescriptor x:data beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnSoftmaxBackward | 5.1 | 4.58 | softmax | - | handle:Handle algo:SoftmaxAlgorithm mode:SoftmaxMode alpha:scalar
  yDesc:TensorDescriptor y:data dyDesc:TensorDescriptor dy:data beta:scalar dxDesc:TensorDescriptor dx:inout |
  BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnCreatePoolingDescriptor | 5.1 | 4.59 | pooling | - | >poolingDesc:PoolingDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetPooling2dDescriptor | 5.1 | 4.60 | pooling | - | poolingDesc:PoolingDescriptor mode:PoolingMode
  maxpoolingNanOpt:NanPropagation windowHeight:int windowWidth:int verticalPadding:int horizontalPadding:int
  verticalStride:int horizontalStride:int | BAD_PARAM
cudnnSetPooling2dDescriptor_v3 | 5.1 | 4.64 | pooling | - | poolingDesc:PoolingDescriptor mode:PoolingMode
  windowHeight:int windowWidth:int verticalPadding:int horizontalPadding:int verticalStride:int horizontalStride:int |
  BAD_PARAM
cudnnSetPooling2dDescriptor_v4 | 5.1 | 4.68 | pooling | cudnnSetPooling2dDescriptor | poolingDesc:PoolingDescriptor
  mode:PoolingMode maxpoolingNanOpt:NanPropagation windowHeight:int windowWidth:int verticalPadding:int
  horizontalPadding:int verticalStride:int horizontalStride:int | BAD_PARAM
cudnnGetPooling2dDescriptor | 5.1 | 4.61 | pooling | - | poolingDesc:PoolingDescriptor >mode:PoolingMode
  >maxpoolingNanOpt:NanPropagation >windowHeight:int >windowWidth:int >verticalPadding:int >horizontalPadding:int
  >verticalStride:int >horizontalStride:int | -
cudnnGetPooling2dDescriptor_v3 | 5.1 | 4.65 | pooling | - | poolingDesc:PoolingDescriptor >mode:PoolingMode
  >windowHeight:int >windowWidth:int >verticalPadding:int >horizontalPadding:int >verticalStride:int
  >horizontalStride:int | -
cudnnGetPooling2dDescriptor_v4 | 5.1 | 4.69 | pooling | cudnnGetPooling2dDescriptor | poolingDesc:PoolingDescriptor
  >mode:PoolingMode >maxpoolingNanOpt:NanPropagation >windowHeight:int >windowWidth:int >verticalPadding:int
  >horizontalPadding:int >verticalStride:int >horizontalStride:int | -
cudnnSetPoolingNdDescriptor | 5.1 | 4.62 | pooling | - | poolingDesc:PoolingDescriptor mode:PoolingMode
  maxpoolingNanOpt:NanPropagation nbDims:int windowDimA:ints paddingA:ints strideA:ints | BAD_PARAM NOT_SUPPORTED
cudnnSetPoolingNdDescriptor_v3 | 5.1 | 4.66 | pooling | - | poolingDesc:PoolingDescriptor mode:PoolingMode nbDims:int
  windowDimA:ints paddingA:ints strideA:ints | BAD_PARAM
cudnnSetPoolingNdDescriptor_v4 | 5.1 | 4.70 | pooling | cudnnSetPoolingNdDescriptor | poolingDesc:PoolingDescriptor
  mode:PoolingMode maxpoolingNanOpt:NanPropagation nbDims:int windowDimA:ints paddingA:ints strideA:ints | BAD_PARAM
cudnnGetPoolingNdDescriptor | 5.1 | 4.63 | pooling | - | poolingDesc:PoolingDescriptor nbDimsRequested:int
  >mode:PoolingMode >maxpoolingNanOpt:NanPropagation >nbDims:int >windowDimA:ints >paddingA:ints >strideA:ints |
  NOT_SUPPORTED
cudnnGetPoolingNdDescriptor_v3 | 5.1 | 4.67 | pooling | - | poolingDesc:PoolingDescriptor nbDimsRequested:int
  >mode:PoolingMode >nbDims:int >windowDimA:ints >paddingA:ints >strideA:ints | NOT_SUPPORTED
cudnnGetPoolingNdDescriptor_v4 | 5.1 | 4.71 | pooling | cudnnGetPoolingNdDescriptor | poolingDesc:PoolingDescriptor
  nbDimsRequested:int >mode:PoolingMode >maxpoolingNanOpt:NanPropagation >nbDims:int >windowDimA:ints >paddingA:ints
  >strideA:ints | NOT_SUPPORTED
cudnnGetPoolingNdForwardOutputDim | 5.1 | 4.74 | pooling | - | poolingDesc:PoolingDescriptor
  inputTensorDesc:TensorDescriptor nbDims:int >outputTensorDimA:ints | BAD_PARAM
cudnnGetPooling2dForwardOutputDim | 5.1 | 4.73 | pooling | - | poolingDesc:PoolingDescriptor
  inputTensorDesc:TensorDescriptor >n:int >c:int >h:int >w:int | BAD_PARAM
cudnnDestroyPoolingDescriptor | 5.1 | 4.72 | pooling | - | poolingDesc:PoolingDescriptor | -
cudnnPoolingForward | 5.1 | 4.75 | pooling | - | handle:Handle poolingDesc:PoolingDescriptor alpha:scalar
  xDesc:TensorDescriptor x:data beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnPoolingBackward | 5.1 | 4.76 | pooling | - | handle:Handle poolingDesc:PoolingDescriptor alpha:scalar
  yDesc:TensorDescriptor y:data dyDesc:TensorDescriptor dy:data xDesc:TensorDescriptor x:data beta:scalar
  dxDesc:TensorDescriptor dx:inout | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnCreateActivationDescriptor | 5.1 | 4.79 | activation | - | >activationDesc:ActivationDescriptor | ALLOC_FAILED
  BAD_PARAM
cudnnSetActivationDescriptor | 5.1 | 4.80 | activation | - | activationDesc:ActivationDescriptor mode:ActivationMode
  reluNanOpt:NanPropagation coef:float | BAD_PARAM
cudnnGetActivationDescriptor | 5.1 | 4.81 | activation | - | activationDesc:ActivationDescriptor >mode:ActivationMode
  >reluNanOpt:NanPropagation >coef:float | -
cudnnDestroyActivationDescriptor | 5.1 | 4.82 | activation | - | activationDesc:ActivationDescriptor | -
cudnnActivationForward | 5.1 | 4.77 | activation | - | handle:Handle activationDesc:ActivationDescriptor alpha:scalar
  xDesc:TensorDescriptor x:data beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnActivationForward_v3 | 5.1 | 4.83 | activation | - | handle:Handle mode:ActivationMode alpha:scalar
  xDesc:TensorDescriptor x:data beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM EXECUTION_FAILED
cudnnActivationForward_v4 | 5.1 | 4.85 | activation | cudnnActivationForward | handle:Handle
  activationDesc:ActivationDescriptor alpha:scalar xDesc:TensorDescriptor x:data beta:scalar yDesc:TensorDescriptor
  y:inout | BAD_PARAM EXECUTION_FAILED
cudnnActivationBackward | 5.1 | 4.78 | activation | - | handle:Handle activationDesc:ActivationDescriptor alpha:scalar
  yDesc:TensorDescriptor y:data dyDesc:TensorDescriptor dy:data xDesc:TensorDescriptor x:data beta:scalar
  dxDesc:TensorDescriptor dx:inout | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnActivationBackward_v3 | 5.1 | 4.84 | activation | - | handle:Handle mode:ActivationMode alpha:scalar
  yDesc:TensorDescriptor y:data dyDesc:TensorDescriptor dy:data xDesc:TensorDescriptor x:data beta:scalar
  dxDesc:TensorDescriptor dx:inout | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnActivationBackward_v4 | 5.1 | 4.86 | activation | cudnnActivationBackward | handle:Handle
  activationDesc:ActivationDescriptor alpha:scalar yDesc:TensorDescriptor y:data dyDesc:TensorDescriptor dy:data
  xDesc:TensorDescriptor x:data beta:scalar dxDesc:TensorDescriptor dx:inout | BAD_PARAM NOT_SUPPORTED
  EXECUTION_FAILED
cudnnCreateLRNDescriptor | 5.1 | 4.87 | lrn | - | >normDesc:LRNDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetLRNDescriptor | 5.1 | 4.88 | lrn | - | normDesc:LRNDescriptor lrnN:int lrnAlpha:float lrnBeta:float lrnK:float
  | BAD_PARAM
cudnnGetLRNDescriptor | 5.1 | 4.89 | lrn | - | normDesc:LRNDescriptor >lrnN:int >lrnAlpha:float >lrnBeta:float
  >lrnK:float | -
cudnnDestroyLRNDescriptor | 5.1 | 4.90 | lrn | - | lrnDesc:LRNDescriptor | -
cudnnLRNCrossChannelForward | 5.1 | 4.91 | lrn | - | handle:Handle normDesc:LRNDescriptor lrnMode:LRNMode alpha:scalar
  xDesc:TensorDescriptor x:data beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM NOT_SUPPORTED
cudnnLRNCrossChannelBackward | 5.1 | 4.92 | lrn | - | handle:Handle normDesc:LRNDescriptor lrnMode:LRNMode
  alpha:scalar yDesc:TensorDescriptor y:data dyDesc:TensorDescriptor dy:data xDesc:TensorDescriptor x:data beta:scalar
  dxDesc:TensorDescriptor dx:inout | BAD_PARAM NOT_SUPPORTED
cudnnDivisiveNormalizationForward | 5.1 | 4.93 | divnorm | - | handle:Handle normDesc:LRNDescriptor mode:DivNormMode
  alpha:scalar xDesc:TensorDescriptor x:data means:?data temp:out temp2:out beta:scalar
  yDesc:TensorDescriptor y:inout | BAD_PARAM NOT_SUPPORTED
cudnnDivisiveNormalizationBackward | 5.1 | 4.94 | divnorm | - | handle:Handle normDesc:LRNDescriptor mode:DivNormMode
  alpha:scalar xDesc:TensorDescriptor x:data means:?data dy:data temp:out temp2:out beta:scalar
  dXdMeansDesc:TensorDescriptor dx:inout dMeans:?out | BAD_PARAM NOT_SUPPORTED
cudnnDeriveBNTensorDescriptor | 5.1 | 4.98 | bn | - | derivedBnDesc:TensorDescriptor xDesc:TensorDescriptor
  mode:BatchNormMode | BAD_PARAM
cudnnBatchNormalizationForwardTraining | 5.1 | 4.96 | bn | - | handle:Handle mode:BatchNormMode alpha:scalar
  beta:scalar xDesc:TensorDescriptor x:data yDesc:TensorDescriptor y:inout bnScaleBiasMeanVarDesc:TensorDescriptor
  bnScale:data bnBias:data exponentialAverageFactor:float resultRunningMean:?inout resultRunningVariance:?inout
  epsilon:float resultSaveMean:?out resultSaveInvVariance:?out | BAD_PARAM NOT_SUPPORTED
cudnnBatchNormalizationForwardInference | 5.1 | 4.95 | bn | - | handle:Handle mode:BatchNormMode alpha:scalar
  beta:scalar xDesc:TensorDescriptor x:data yDesc:TensorDescriptor y:inout bnScaleBiasMeanVarDesc:TensorDescriptor
  bnScale:data bnBias:data estimatedMean:data estimatedVariance:data epsilon:float | BAD_PARAM NOT_SUPPORTED
cudnnBatchNormalizationBackward | 5.1 | 4.97 | bn | - | handle:Handle mode:BatchNormMode alphaDataDiff:scalar
  betaDataDiff:scalar alphaParamDiff:scalar betaParamDiff:scalar xDesc:TensorDescriptor x:data dyDesc:TensorDescriptor
  dy:data dxDesc:TensorDescriptor dx:inout dBnScaleBiasDesc:TensorDescriptor bnScale:data dBnScaleResult:inout
  dBnBiasResult:inout epsilon:float savedMean:?data savedInvVariance:?data | BAD_PARAM NOT_SUPPORTED
cudnnCreateSpatialTransformerDescriptor | 5.1 | 4.118 | spatial_tf | - | >stDesc:SpatialTransformerDescriptor |
  ALLOC_FAILED BAD_PARAM
cudnnSetSpatialTransformerNdDescriptor | 5.1 | 4.120 | spatial_tf | - | stDesc:SpatialTransformerDescriptor
  samplerType:SamplerType dataType:DataType nbDims:int dimA:ints | BAD_PARAM
cudnnDestroySpatialTransformerDescriptor | 5.1 | 4.119 | spatial_tf | - | stDesc:SpatialTransformerDescriptor | -
cudnnSpatialTfGridGeneratorForward | 5.1 | 4.121 | spatial_tf | - | handle:Handle stDesc:SpatialTransformerDescriptor
  theta:data grid:out | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnSpatialTfGridGeneratorBackward | 5.1 | 4.122 | spatial_tf | - | handle:Handle stDesc:SpatialTransformerDescriptor
  dgrid:data dtheta:out | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnSpatialTfSamplerForward | 5.1 | 4.123 | spatial_tf | - | handle:Handle stDesc:SpatialTransformerDescriptor
  alpha:scalar xDesc:TensorDescriptor x:data grid:data beta:scalar yDesc:TensorDescriptor y:inout | BAD_PARAM
  NOT_SUPPORTED EXECUTION_FAILED
cudnnSpatialTfSamplerBackward | 5.1 | 4.124 | spatial_tf | - | handle:Handle stDesc:SpatialTransformerDescriptor
  alpha:scalar xDesc:TensorDescriptor x:data beta:scalar dxDesc:TensorDescriptor dx:inout alphaDgrid:scalar
  dyDesc:TensorDescriptor dy:data grid:data betaDgrid:scalar dgrid:inout | BAD_PARAM NOT_SUPPORTED EXECUTION_FAILED
cudnnCreateDropoutDescriptor | 5.1 | 4.111 | dropout | - | >dropoutDesc:DropoutDescriptor | ALLOC_FAILED BAD_PARAM
cudnnDestroyDropoutDescriptor | 5.1 | 4.112 | dropout | - | dropoutDesc:DropoutDescriptor | -
cudnnDropoutGetStatesSize | 5.1 | 4.113 | dropout | - | handle:Handle >sizeInBytes:size | -
cudnnDropoutGetReserveSpaceSize | 5.1 | 4.114 | dropout | - | xdesc:TensorDescriptor >sizeInBytes:size | -
cudnnSetDropoutDescriptor | 5.1 | 4.115 | dropout | - | dropoutDesc:DropoutDescriptor handle:Handle dropout:float
  states:?out stateSizeInBytes:size seed:size | INVALID_VALUE EXECUTION_FAILED BAD_PARAM
cudnnDropoutForward | 5.1 | 4.116 | dropout | - | handle:Handle dropoutDesc:DropoutDescriptor xdesc:TensorDescriptor
  x:data ydesc:TensorDescriptor y:out reserveSpace:out reserveSpaceSizeInBytes:size | BAD_PARAM EXECUTION_FAILED
  NOT_SUPPORTED
cudnnDropoutBackward | 5.1 | 4.117 | dropout | - | handle:Handle dropoutDesc:DropoutDescriptor dydesc:TensorDescriptor
  dy:data dxdesc:TensorDescriptor dx:out reserveSpace:data reserveSpaceSizeInBytes:size | BAD_PARAM EXECUTION_FAILED
  NOT_SUPPORTED
cudnnCreateRNNDescriptor | 5.1 | 4.99 | rnn | - | >rnnDesc:RNNDescriptor | ALLOC_FAILED BAD_PARAM
cudnnDestroyRNNDescriptor | 5.1 | 4.100 | rnn | - | rnnDesc:RNNDescriptor | -
cudnnCreatePersistentRNNPlan | 6.0 | - | rnn | - | rnnDesc:RNNDescriptor minibatch:int dataType:DataType
  >plan:PersistentRNNPlan | ALLOC_FAILED NOT_SUPPORTED RUNTIME_PREREQUISITE_MISSING BAD_PARAM
cudnnSetPersistentRNNPlan | 6.0 | - | rnn | - | rnnDesc:RNNDescriptor plan:PersistentRNNPlan | BAD_PARAM
cudnnDestroyPersistentRNNPlan | 6.0 | - | rnn | - | plan:PersistentRNNPlan | -
cudnnSetRNNDescriptor_v6 | 6.0 | - | rnn | - | handle:Handle rnnDesc:RNNDescriptor hiddenSize:int numLayers:int
  dropoutDesc:DropoutDescriptor inputMode:RNNInputMode direction:DirectionMode mode:RNNMode algo:RNNAlgo
  dataType:DataType | BAD_PARAM NOT_SUPPORTED
cudnnSetRNNDescriptor | 5.1 | 4.101 | rnn | - | rnnDesc:RNNDescriptor hiddenSize:int numLayers:int
  dropoutDesc:DropoutDescriptor inputMode:RNNInputMode direction:DirectionMode mode:RNNMode dataType:DataType |
  BAD_PARAM
cudnnGetRNNWorkspaceSize | 5.1 | 4.102 | rnn | - | handle:Handle rnnDesc:RNNDescriptor seqLength:int
  xDesc:TensorDescriptor[] >sizeInBytes:size | BAD_PARAM NOT_SUPPORTED
cudnnGetRNNTrainingReserveSize | 5.1 | 4.103 | rnn | - | handle:Handle rnnDesc:RNNDescriptor seqLength:int
  xDesc:TensorDescriptor[] >sizeInBytes:size | BAD_PARAM NOT_SUPPORTED
cudnnGetRNNParamsSize | 5.1 | 4.104 | rnn | - | handle:Handle rnnDesc:RNNDescriptor xDesc:TensorDescriptor
  >sizeInBytes:size dataType:DataType | BAD_PARAM NOT_SUPPORTED
cudnnGetRNNLinLayerMatrixParams | 5.1 | 4.105 | rnn | - | handle:Handle rnnDesc:RNNDescriptor layer:int
  xDesc:TensorDescriptor wDesc:FilterDescriptor w:data linLayerID:int linLayerMatDesc:FilterDescriptor
  >linLayerMat:address | BAD_PARAM INVALID_VALUE NOT_SUPPORTED
cudnnGetRNNLinLayerBiasParams | 5.1 | 4.106 | rnn | - | handle:Handle rnnDesc:RNNDescriptor layer:int
  xDesc:TensorDescriptor wDesc:FilterDescriptor w:data linLayerID:int linLayerBiasDesc:FilterDescriptor
  >linLayerBias:address | BAD_PARAM INVALID_VALUE NOT_SUPPORTED
cudnnRNNForwardInference | 5.1 | 4.107 | rnn | - | handle:Handle rnnDesc:RNNDescriptor seqLength:int
  xDesc:TensorDescriptor[] x:data hxDesc:TensorDescriptor hx:?data cxDesc:?TensorDescriptor cx:?data
  wDesc:FilterDescriptor w:data yDesc:TensorDescriptor[] y:out hyDesc:TensorDescriptor hy:?out
  cyDesc:?TensorDescriptor cy:?out workspace:workspace workSpaceSizeInBytes:size | ALLOC_FAILED BAD_PARAM
  EXECUTION_FAILED NOT_SUPPORTED
cudnnRNNForwardTraining | 5.1 | 4.108 | rnn | - | handle:Handle rnnDesc:RNNDescriptor seqLength:int
  xDesc:TensorDescriptor[] x:data hxDesc:TensorDescriptor hx:?data cxDesc:?TensorDescriptor cx:?data
  wDesc:FilterDescriptor w:data yDesc:TensorDescriptor[] y:out hyDesc:TensorDescriptor hy:?out
  cyDesc:?TensorDescriptor cy:?out workspace:workspace workSpaceSizeInBytes:size reserveSpace:out
  reserveSpaceSizeInBytes:size | ALLOC_FAILED BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnRNNBackwardData | 5.1 | 4.109 | rnn | - | handle:Handle rnnDesc:RNNDescriptor seqLength:int
  yDesc:TensorDescriptor[] y:data dyDesc:TensorDescriptor[] dy:data dhyDesc:TensorDescriptor dhy:?data
  dcyDesc:?TensorDescriptor dcy:?data wDesc:FilterDescriptor w:data hxDesc:TensorDescriptor hx:?data
  cxDesc:?TensorDescriptor cx:?data dxDesc:TensorDescriptor[] dx:out dhxDesc:TensorDescriptor dhx:?out
  dcxDesc:?TensorDescriptor dcx:?out workspace:workspace workSpaceSizeInBytes:size reserveSpace:inout
  reserveSpaceSizeInBytes:size | ALLOC_FAILED BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnRNNBackwardWeights | 5.1 | 4.110 | rnn | - | handle:Handle rnnDesc:RNNDescriptor seqLength:int
  xDesc:TensorDescriptor[] x:data hxDesc:TensorDescriptor hx:?data yDesc:TensorDescriptor[] y:data workspace:workspace
  workSpaceSizeInBytes:size dwDesc:FilterDescriptor dw:inout reserveSpace:inout reserveSpaceSizeInBytes:size |
  ALLOC_FAILED BAD_PARAM EXECUTION_FAILED NOT_SUPPORTED
cudnnSetConvolution2dDescriptor_v4 | 6.0 | - | conv | - | convDesc:ConvolutionDescriptor pad_h:int pad_w:int u:int
  v:int dilation_h:int dilation_w:int mode:ConvolutionMode | BAD_PARAM NOT_SUPPORTED
cudnnSetConvolution2dDescriptor_v5 | 5.1 | - | conv | cudnnSetConvolution2dDescriptor | convDesc:ConvolutionDescriptor
  pad_h:int pad_w:int u:int v:int dilation_h:int dilation_w:int mode:ConvolutionMode computeType:DataType= | BAD_PARAM
  NOT_SUPPORTED
cudnnGetConvolution2dDescriptor_v4 | 6.0 | - | conv | - | convDesc:ConvolutionDescriptor >pad_h:int >pad_w:int >u:int
  >v:int >dilation_h:int >dilation_w:int >mode:ConvolutionMode | BAD_PARAM
cudnnGetConvolution2dDescriptor_v5 | 5.1 | - | conv | cudnnGetConvolution2dDescriptor | convDesc:ConvolutionDescriptor
  >pad_h:int >pad_w:int >u:int >v:int >dilation_h:int >dilation_w:int >mode:ConvolutionMode >computeType:DataType |
  BAD_PARAM
cudnnSetConvolutionMathType | 7.x | - | conv | - | convDesc:ConvolutionDescriptor mathType:MathType | BAD_PARAM
cudnnGetConvolutionMathType | 7.x | - | conv | - | convDesc:ConvolutionDescriptor >mathType:MathType | BAD_PARAM
cudnnSetConvolutionGroupCount | 7.x | - | conv | - | convDesc:ConvolutionDescriptor groupCount:int | BAD_PARAM
cudnnGetConvolutionGroupCount | 7.x | - | conv | - | convDesc:ConvolutionDescriptor >groupCount:int | BAD_PARAM
cudnnGetConvolutionForwardAlgorithmMaxCount | 7.x | - | conv | - | handle:Handle >count:int | BAD_PARAM
cudnnGetConvolutionBackwardFilterAlgorithmMaxCount | 7.x | - | conv | - | handle:Handle >count:int | BAD_PARAM
cudnnGetConvolutionBackwardDataAlgorithmMaxCount | 7.x | - | conv | - | handle:Handle >count:int | BAD_PARAM
cudnnGetConvolutionForwardAlgorithm_v7 | 7.x | - | conv | - | handle:Handle srcDesc:TensorDescriptor
  filterDesc:FilterDescriptor convDesc:ConvolutionDescriptor destDesc:TensorDescriptor requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs | BAD_PARAM
cudnnGetConvolutionBackwardFilterAlgorithm_v7 | 7.x | - | conv | - | handle:Handle srcDesc:TensorDescriptor
  diffDesc:TensorDescriptor convDesc:ConvolutionDescriptor gradDesc:FilterDescriptor requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs | BAD_PARAM
cudnnGetConvolutionBackwardDataAlgorithm_v7 | 7.x | - | conv | - | handle:Handle filterDesc:FilterDescriptor
  diffDesc:TensorDescriptor convDesc:ConvolutionDescriptor gradDesc:TensorDescriptor requestedAlgoCount:int
  >returnedAlgoCount:int >perfResults:perfs | BAD_PARAM
cudnnRestoreDropoutDescriptor | 7.x | - | dropout | - | dropoutDesc:DropoutDescriptor handle:Handle dropout:float
  states:?data stateSizeInBytes:size seed:size | INVALID_VALUE EXECUTION_FAILED
cudnnGetDropoutDescriptor | 7.x | - | dropout | - | dropoutDesc:DropoutDescriptor handle:Handle >dropout:float
  >states:address >seed:size | BAD_PARAM
cudnnGetRNNDescriptor | 7.x | - | rnn | - | cudnnHandle:Handle rnnDesc:RNNDescriptor >hiddenSize:int >numLayers:int
  >dropoutDesc:DropoutDescriptor >inputMode:RNNInputMode >direction:DirectionMode >mode:RNNMode >algo:RNNAlgo
  >dataType:DataType | BAD_PARAM
cudnnSetRNNDescriptor_v5 | 7.x | - | rnn | cudnnSetRNNDescriptor | rnnDesc:RNNDescriptor hiddenSize:int numLayers:int
  dropoutDesc:DropoutDescriptor inputMode:RNNInputMode direction:DirectionMode mode:RNNMode dataType:DataType |
  BAD_PARAM
cudnnSetRNNMatrixMathType | 7.x | - | rnn | - | desc:RNNDescriptor math:MathType | BAD_PARAM
cudnnCreateCTCLossDescriptor | 7.x | - | misc | - | >ctcLossDesc:CTCLossDescriptor | ALLOC_FAILED BAD_PARAM
cudnnSetCTCLossDescriptor | 7.x | - | misc | - | ctcLossDesc:CTCLossDescriptor compType:DataType | BAD_PARAM
cudnnGetCTCLossDescriptor | 7.x | - | misc | - | ctcLossDesc:CTCLossDescriptor >compType:DataType | BAD_PARAM
cudnnDestroyCTCLossDescriptor | 7.x | - | misc | - | ctcLossDesc:CTCLossDescriptor | -
cudnnGetCTCLossWorkspaceSize | 7.x | - | misc | - | handle:Handle probsDesc:TensorDescriptor
  gradientsDesc:?TensorDescriptor labels:ints labelLengths:ints inputLengths:ints algo:CTCLossAlgo
  ctcLossDesc:CTCLossDescriptor >sizeInBytes:size | BAD_PARAM NOT_SUPPORTED
cudnnCTCLoss | 7.x | - | misc | - | handle:Handle probsDesc:TensorDescriptor probs:data labels:ints labelLengths:ints
  inputLengths:ints costs:out gradientsDesc:?TensorDescriptor gradients:?out algo:CTCLossAlgo
  ctcLossDesc:CTCLossDescriptor workspace:workspace workSpaceSizeInBytes:size | BAD_PARAM NOT_SUPPORTED
  EXECUTION_FAILED
cudnnGetCudartVersion | 7.x | - | handle | - | - | -
cudnnQueryRuntimeError | 7.x | - | handle | - | handle:Handle >rstatus:Status mode:ErrQueryMode >tag:RuntimeTag |
  BAD_PARAM MAPPING_ERROR INTERNAL_ERROR
"""
